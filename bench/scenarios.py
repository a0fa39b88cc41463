"""The scenarios: read a listing, list a hundred, create one; and the checks of their responses."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench import BenchmarkError
from bench.data import ACTIVE, Data, build_listing, list_active_numbers
from bench.http_client import Request, Response, send

PATH = "/api/v1/listings"
_CREATE_BODIES = 12  # different bodies, each sent with each key


class Scenario(NamedTuple):
    """An endpoint under load.

    `requests` are sent in this order; the key changes with every request, so that none reaches its rate limit. `check`
    sends requests to a port and returns the response; it raises BenchmarkError if that is wrong. `creates` says whether
    every request creates a row.
    """

    name: str
    requests: Callable[[Data], list[Request]]
    check: Callable[[Data, int], Response]
    creates: bool = False
    prepare: Callable[[int, list[Request]], list[Request]] = lambda _, requests: requests
    """Derives the requests that are sent from `requests` and the responses of the server at a port."""
    sizes_vary: bool = False
    """Whether responses have different sizes, so that their sum isn't checked."""
    is_used_up: bool = False
    """Whether each request can succeed only once; a run then has at most two seconds."""
    max_connections: int = 1000


def _get_one_requests(data: Data) -> list[Request]:
    return [
        Request("GET", f"{PATH}/{owner.listings[(number * 37 + index) % ACTIVE]}", owner.key)
        for number in range(ACTIVE)
        for index, owner in enumerate(data.owners)
    ]


def _list_requests(data: Data) -> list[Request]:
    return [Request("GET", PATH, owner.key) for owner in data.owners]


def _create_requests(data: Data) -> list[Request]:
    bodies = [json.dumps(build_listing(number)) for number in range(_CREATE_BODIES)]
    return [Request("POST", PATH, owner.key, body) for body in bodies for owner in data.owners]


def _check_get_one(data: Data, port: int) -> Response:
    """Check all listings of the first owner; return the response of median size."""
    owner = data.owners[0]
    responses = []
    for listing_id, number in zip(owner.listings, list_active_numbers(), strict=True):
        response = send(port, Request("GET", f"{PATH}/{listing_id}", owner.key))
        require_listing(response, listing_id, build_listing(number))
        responses.append(response)
    return sorted(responses, key=lambda response: response.size)[len(responses) // 2]


def _check_list(data: Data, port: int) -> Response:
    owner = data.owners[0]
    response = send(port, Request("GET", PATH, owner.key))
    require_list(response, owner.listings)
    return response


def _check_create(data: Data, port: int) -> Response:
    """Create a listing and read it back."""
    request = _create_requests(data)[0]
    response = send(port, request)
    listing_id = require_created(response)
    stored = send(port, Request("GET", f"{PATH}/{listing_id}", request.key))
    require_listing(stored, listing_id, json.loads(request.body))
    return response


def require_listing(response: Response, listing_id: int, content: Mapping[str, Any]) -> None:
    """Raise BenchmarkError unless the response is the listing with this id and content."""
    _require(response.status == 200, response, "the status must be 200")  # noqa: PLR2004 - see the message
    record = response.json()
    _require(isinstance(record, dict), response, "a listing must be an object")
    _require(record.get("id") == listing_id, response, f"the id must be {listing_id}")
    for name in ("title", "content", "price", "region", "images"):
        expected = content.get(name, [])
        _require(record.get(name) == expected, response, f"its {name} must be {expected!r}")


def require_list(response: Response, ids: tuple[int, ...]) -> None:
    """Raise BenchmarkError unless the response lists exactly these listings, newest first."""
    _require(response.status == 200, response, "the status must be 200")  # noqa: PLR2004 - see the message
    content = response.json()
    found: Any = content.get("listings") if isinstance(content, dict) else None
    _require(isinstance(found, list), response, 'the body must be {"listings": [...]}')
    ids_found = [record.get("id") for record in found]
    _require(
        ids_found == sorted(ids, reverse=True), response, f"it must list the {len(ids)} active listings, newest first"
    )
    titles = [build_listing(number)["title"] for number in reversed(list_active_numbers())]
    _require([record.get("title") for record in found] == titles, response, "every title must match")
    _require(all(record.get("is_active") is True for record in found), response, "all must be active")


def require_created(response: Response) -> int:
    """Return the id of the new listing. Raise BenchmarkError unless the response has one."""
    _require(response.status == 201, response, "the status must be 201")  # noqa: PLR2004 - see the message
    content = response.json()
    _require(
        isinstance(content, dict) and content.get("message") == "listing created", response, "the message must match"
    )
    listing_id = content.get("id")
    _require(isinstance(listing_id, int), response, "the id must be an integer")
    return int(listing_id)


def _require(is_true: bool, response: Response, rule: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not is_true:
        preview = f"{response.status} {response.body[:120].decode('utf-8', 'replace')}"
        raise BenchmarkError(f"Wrong response ({rule}): {preview}")


SCENARIOS = (
    Scenario("get one", _get_one_requests, _check_get_one),
    Scenario("list of 100", _list_requests, _check_list),
    Scenario("create", _create_requests, _check_create, creates=True),
)
