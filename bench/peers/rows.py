"""The scenarios of the comparison with peers."""

import json
from collections.abc import Callable
from itertools import cycle
from typing import Any

from bench import BenchmarkError
from bench.data import ACTIVE, Data, Owner, build_listing
from bench.http_client import Request, Response, send, send_all
from bench.scenarios import PATH, SCENARIOS, Scenario

BATCH_SIZE = 100
_MANY_CONNECTIONS, _FEW_CONNECTIONS = 256, 32
_NUMBER = 1_000_000  # load.lua replaces it, so that no update repeats a price and no request an idempotency key
_PAGE = 50
_FILTERS = 100  # different lower bounds of the price for each account
_PREPARED = 10  # requests of each account that are sent before the run
_WORDS = ("kauri", "table", "oak", "with", "and", "made", "good", "used", "from", "year")
_BODIES = 12
_DELETED_BATCHES = 200  # of listings that are created to be deleted, besides the active ones


def _for_each_owner(count: int, build: Callable[[Owner, int], Request]) -> Callable[[Data], list[Request]]:
    """Build `count` requests of each owner, which take turns."""
    return lambda data: [build(owner, number) for number in range(count) for owner in data.owners]


def _get(owner: Owner, number: int) -> Request:
    return Request("GET", f"{PATH}/{owner.listings[number % ACTIVE]}", owner.key)


def _page(owner: Owner, number: int) -> Request:
    query = f"limit={_PAGE}&status=active&sort=-updated_at&price_min=0.{number:02}"
    return Request("GET", f"{PATH}?{query}", owner.key)


def _updated_since(owner: Owner, number: int) -> Request:
    since = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    return Request("GET", f"{PATH}?limit={_PAGE}&updated_since={since}", owner.key)


def _search(owner: Owner, number: int) -> Request:
    word = _WORDS[number % len(_WORDS)]
    return Request("GET", f"{PATH}?limit={_PAGE}&q={word}&price_min=0.{number:02}", owner.key)


def _create_once(owner: Owner, number: int) -> Request:
    header = f"Idempotency-Key: bench-{_NUMBER}"
    return Request("POST", PATH, owner.key, json.dumps(build_listing(number)), header)


def _update(owner: Owner, number: int) -> Request:
    body = json.dumps({"price": _NUMBER})
    return Request("PATCH", f"{PATH}/{owner.listings[number % len(owner.listings)]}", owner.key, body)


def _delete(owner: Owner, number: int) -> Request:
    return Request("DELETE", f"{PATH}/{owner.listings[number]}", owner.key)


def _batch(owner: Owner, operations: list[dict[str, Any]]) -> Request:
    return Request("POST", f"{PATH}/batch", owner.key, json.dumps({"operations": operations}))


def _batch_of_creates(owner: Owner, number: int) -> Request:
    numbers = range(number, number + BATCH_SIZE)
    return _batch(owner, [{"op": "create", "listing": build_listing(it)} for it in numbers])


def _batch_of_updates(owner: Owner, _: int) -> Request:
    ids = owner.listings[:BATCH_SIZE]
    return _batch(owner, [{"op": "update", "id": it, "changes": {"price": _NUMBER}} for it in ids])


def _batch_of_puts(owner: Owner, _: int) -> Request:
    listings = ({**build_listing(it), "external_id": f"sku-{it}", "price": _NUMBER} for it in range(BATCH_SIZE))
    return _batch(owner, [{"op": "put", "listing": listing} for listing in listings])


# Preparation: what the requests need to know from responses


def _add_tags(port: int, requests: list[Request]) -> list[Request]:
    tags = (response.get_header("etag") for response in send_all(port, requests))
    return [request._replace(header=f"If-None-Match: {tag}") for request, tag in zip(requests, tags, strict=True)]


def _continue_pages(port: int, requests: list[Request]) -> list[Request]:
    cursors = (response.get_header("x-next-cursor") for response in send_all(port, requests))
    return [
        request._replace(path=f"{request.path}&cursor={cursor}")
        for request, cursor in zip(requests, cursors, strict=True)
    ]


def _add_deletable(port: int, requests: list[Request]) -> list[Request]:
    """Create further listings, and add their deletes, so that the requests last for the run."""
    keys = list(dict.fromkeys(request.key for request in requests))
    owners = [owner for owner, _ in zip(cycle(Owner(key, ()) for key in keys), range(_DELETED_BATCHES), strict=False)]
    responses = send_all(port, (_batch_of_creates(owner, 0) for owner in owners))
    created = [
        owner._replace(listings=tuple(result["body"]["id"] for result in response.json()["results"]))
        for owner, response in zip(owners, responses, strict=True)
    ]
    return requests + [_delete(owner, number) for number in range(BATCH_SIZE) for owner in created]


def _send_first(port: int, requests: list[Request]) -> list[Request]:
    """Send each request once, so that puts find their listings."""
    for response in send_all(port, requests):
        _require_results(response)
    return requests


# Checks of a response


def _require(is_true: bool, response: Response) -> None:  # noqa: FBT001 - reads as an assertion
    if not is_true:
        raise BenchmarkError(f"Wrong response: {response.status} {response.body[:200].decode('utf-8', 'replace')}")


def _require_status(status: int) -> Callable[[Response], None]:
    return lambda response: _require(response.status == status, response)


def _require_page(response: Response) -> None:
    records = (response.json() or {}).get("listings", [])
    _require(response.status == 200 and len(records) == _PAGE, response)  # noqa: PLR2004 - success
    _require(all(record["is_active"] for record in records), response)
    times = [record["updated_at"] for record in records]
    _require(times == sorted(times, reverse=True), response)


def _require_rest(response: Response) -> None:
    records = (response.json() or {}).get("listings", [])
    _require(response.status == 200 and 0 < len(records) <= _PAGE, response)  # noqa: PLR2004 - success


def _require_matches(response: Response) -> None:
    records = (response.json() or {}).get("listings", [])
    texts = [f"{record['title']} {record['content']}".lower() for record in records]
    _require(bool(texts) and all(_WORDS[0] in text for text in texts), response)


def _require_results(response: Response) -> None:
    results = (response.json() or {}).get("results", [])
    _require(len(results) == BATCH_SIZE and all(it["status"] in {200, 201} for it in results), response)


def _check_update(data: Data, port: int) -> Response:
    request = _update(data.owners[0], 0)
    response = send(port, request)
    _require_status(200)(response)
    stored = send(port, Request("GET", request.path, request.key))
    _require((stored.json() or {}).get("price") == _NUMBER, stored)
    return response


def _check_delete(data: Data, port: int) -> Response:
    """Delete the newest listing of an owner; the scenario doesn't."""
    request = _delete(data.owners[1], ACTIVE - 1)
    response = send(port, request)
    _require_status(200)(response)
    _require_status(404)(send(port, Request("GET", request.path, request.key)))
    return response


def _row(
    name: str,
    requests: Callable[[Data], list[Request]],
    require: Callable[[Response], None],
    prepare: Callable[[int, list[Request]], list[Request]] = lambda _, requests: requests,
) -> Scenario:
    """Build a scenario whose first response is checked."""

    def check(data: Data, port: int) -> Response:
        response = send(port, prepare(port, requests(data)[:1])[0])
        require(response)
        return response

    return Scenario(name, requests, check, prepare=prepare, sizes_vary=True, max_connections=_FEW_CONNECTIONS)


_GET, _LIST, _CREATE = SCENARIOS

ROWS = (
    _GET._replace(max_connections=_MANY_CONNECTIONS),
    _row("304 of one", _for_each_owner(_PREPARED, _get), _require_status(304), _add_tags),
    _LIST._replace(max_connections=_FEW_CONNECTIONS),
    _row("page of 50", _for_each_owner(_FILTERS, _page), _require_page),
    _row("next page", _for_each_owner(_PREPARED, _page), _require_rest, _continue_pages),
    _row("updated_since", _for_each_owner(_FILTERS, _updated_since), _require_page),
    _row("q", _for_each_owner(_FILTERS, _search), _require_matches),
    _CREATE._replace(max_connections=_MANY_CONNECTIONS),
    _row("create with Idempotency-Key", _for_each_owner(_BODIES, _create_once), _require_status(201)),
    _row("update", _for_each_owner(ACTIVE, _update), _require_status(200))._replace(check=_check_update),
    _row("delete", _for_each_owner(ACTIVE - 1, _delete), _require_status(200), _add_deletable)._replace(
        check=_check_delete, is_used_up=True
    ),
    _row("batch of 100 creates", _for_each_owner(1, _batch_of_creates), _require_results),
    _row("batch of 100 updates", _for_each_owner(1, _batch_of_updates), _require_results),
    _row("batch of 100 puts", _for_each_owner(1, _batch_of_puts), _require_results, _send_first),
)
"""All scenarios. Pages differ in a filter, so no cache of responses matters."""
