"""What is measured: reading a listing, listing a hundred, creating one; and what a right answer to each is."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench import RejectedRequest
from bench.data import ACTIVE, Data, active_numbers, content_of
from bench.exchange import Answer, Request, exchange

PATH = "/api/v1/listings"
_BODIES = 12  # different bodies of creates; as many requests are held ready for each key


class Scenario(NamedTuple):
    """An endpoint under load.

    `requests`: what wrk sends in turn, keys changing fastest, so that no key comes near its rate limit. `check`: asks
    the service on a port and raises Refusal unless the answer is right; returns the answer. `creates`: whether every
    request leaves a row.
    """

    name: str
    requests: Callable[[Data], list[Request]]
    check: Callable[[Data, int], Answer]
    creates: bool = False


def _get_one_requests(data: Data) -> list[Request]:
    return [
        Request("GET", f"{PATH}/{owner.listings[(number * 37 + place) % ACTIVE]}", owner.key)
        for number in range(ACTIVE)
        for place, owner in enumerate(data.owners)
    ]


def _list_requests(data: Data) -> list[Request]:
    return [Request("GET", PATH, owner.key) for owner in data.owners]


def _create_requests(data: Data) -> list[Request]:
    bodies = [json.dumps(content_of(number)) for number in range(_BODIES)]
    return [Request("POST", PATH, owner.key, body) for body in bodies for owner in data.owners]


def _check_get_one(data: Data, port: int) -> Answer:
    """All listings of the first owner; returns the answer of median size."""
    owner = data.owners[0]
    answers = []
    for listing_id, number in zip(owner.listings, active_numbers(), strict=True):
        answer = exchange(port, Request("GET", f"{PATH}/{listing_id}", owner.key))
        require_listing(answer, listing_id, content_of(number))
        answers.append(answer)
    return sorted(answers, key=lambda answer: answer.size)[len(answers) // 2]


def _check_list(data: Data, port: int) -> Answer:
    owner = data.owners[0]
    answer = exchange(port, Request("GET", PATH, owner.key))
    require_list(answer, owner.listings)
    return answer


def _check_create(data: Data, port: int) -> Answer:
    """Creates one listing and reads it again."""
    request = _create_requests(data)[0]
    answer = exchange(port, request)
    listing_id = require_created(answer)
    stored = exchange(port, Request("GET", f"{PATH}/{listing_id}", request.key))
    require_listing(stored, listing_id, json.loads(request.body))
    return answer


def require_listing(answer: Answer, listing_id: int, content: Mapping[str, Any]) -> None:
    """Raises Refusal unless the answer is the listing of this id and content."""
    _require(answer.status == 200, answer, "a listing has the status 200")  # noqa: PLR2004 - told beside it
    record = answer.json()
    _require(isinstance(record, dict), answer, "a listing is an object")
    _require(record.get("id") == listing_id, answer, f"the listing {listing_id} was asked for")
    for name in ("title", "content", "price", "region", "images"):
        wanted = content.get(name, [])
        _require(record.get(name) == wanted, answer, f"its {name} is {wanted!r}")


def require_list(answer: Answer, ids: tuple[int, ...]) -> None:
    """Raises Refusal unless the answer is the list of exactly these listings, newest first."""
    _require(answer.status == 200, answer, "a list has the status 200")  # noqa: PLR2004 - told beside it
    content = answer.json()
    found: Any = content.get("listings") if isinstance(content, dict) else None
    _require(isinstance(found, list), answer, 'a list is {"listings": [...]}')
    shown = [record.get("id") for record in found]
    _require(shown == sorted(ids, reverse=True), answer, f"the {len(ids)} active listings come newest first")
    titles = [content_of(number)["title"] for number in reversed(active_numbers())]
    _require([record.get("title") for record in found] == titles, answer, "each has its title")
    _require(all(record.get("is_active") is True for record in found), answer, "all are active")


def require_created(answer: Answer) -> int:
    """The new listing's id. Raises Refusal unless the answer tells one."""
    _require(answer.status == 201, answer, "a create has the status 201")  # noqa: PLR2004 - told beside it
    content = answer.json()
    _require(isinstance(content, dict) and content.get("message") == "listing created", answer, "it says so")
    listing_id = content.get("id")
    _require(isinstance(listing_id, int), answer, "it tells the new id")
    return int(listing_id)


def _require(holds: bool, answer: Answer, rule: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        shown = f"{answer.status} {answer.body[:120].decode('utf-8', 'replace')}"
        raise RejectedRequest(f"The server answers wrongly ({rule}), so it is not measured: {shown}")


SCENARIOS = (
    Scenario("get one", _get_one_requests, _check_get_one),
    Scenario("list of 100", _list_requests, _check_list),
    Scenario("create", _create_requests, _check_create, creates=True),
)
