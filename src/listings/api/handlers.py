"""One handler an endpoint: from the request to the use case, and from what it returns to the answer."""

from hashlib import sha256

from listings.api import batch, codec, params, rate_limit_headers
from listings.api.codec import Response
from listings.api.request import Request
from listings.api.response_cache import WHOLE_LIST
from listings.domain.model import Listing
from listings.service import Service, WriteOptions


async def list_listings(service: Service, request: Request) -> Response:
    """GET /api/v1/listings."""
    asked = params.read_list(request.query, strict=request.strict)
    revision = await service.get_revision(request.caller)
    tag = asked.tag(request.caller.account_id, revision)
    if codec.is_current(request.header_values(b"if-none-match"), tag):
        return codec.not_modified_response(tag)
    if asked is params.PLAIN:
        return await _whole_list(service, request, revision, tag)
    page = await service.find_listings(request.caller, asked.query)
    behind = asked.next_address(codec.LISTINGS_PATH, page.next_cursor) if page.next_cursor is not None else ""
    return codec.page_response(page.listings, asked.include, tag, behind)


async def create_listing(service: Service, request: Request) -> Response:
    """POST /api/v1/listings."""
    new, headers = codec.new_listing(request.body, strict=request.strict)
    terms = _terms(request, claimed=True)
    added = await service.create_listing(request.caller, new, terms)
    if terms.dry_run and not added.replayed:
        return codec.message_response("listing would be created", headers)
    return codec.created_response(added, headers)


async def get_listing(service: Service, request: Request) -> Response:
    """GET /api/v1/listings/{id}."""
    if not request.query:
        answer = await _plain_listing(service, request)
    else:
        include = params.read_include(request.query, strict=request.strict)
        answer = codec.listing_response(await _listing(service, request), include)
    if codec.is_current(request.header_values(b"if-none-match"), answer.tag):
        return codec.not_modified_response(answer.tag)
    return answer


async def update_listing(service: Service, request: Request) -> Response:
    """PUT and PATCH /api/v1/listings/{id}."""
    listing_id = codec.listing_id(request.segment)
    terms = _terms(request)
    change, headers = codec.listing_change(request.body, strict=request.strict)
    listing = await service.update_listing(request.caller, listing_id, change, terms)
    return _edited("listing updated", "listing would be updated", terms, headers, codec.tag_of(listing))


async def delete_listing(service: Service, request: Request) -> Response:
    """DELETE /api/v1/listings/{id}."""
    terms = _terms(request)
    await service.delete_listing(request.caller, codec.listing_id(request.segment), terms)
    return _edited("listing deleted", "listing would be deleted", terms)


async def restore_listing(service: Service, request: Request) -> Response:
    """POST /api/v1/listings/{id}/restore."""
    terms = _terms(request)
    listing = await service.restore_listing(request.caller, codec.listing_id(request.segment), terms)
    return _edited("listing restored", "listing would be restored", terms, tag=codec.tag_of(listing))


async def run_batch(service: Service, request: Request) -> Response:
    """POST /api/v1/listings/batch."""
    asked = batch.read(request.body, strict=request.strict)
    terms = _terms(request, claimed=True)
    steps = [operation.step(service, request.caller) for operation in asked.operations]
    record = asked.recorder(dry_run=terms.dry_run)
    done = await service.run_batch(request.caller, steps, record, terms, atomic=asked.atomic)
    headers = codec.preference_headers(asked.ignored, strict=request.strict)
    if isinstance(done, str):
        return Response(200, done.encode(), codec.REPLAYED + headers)
    return Response(200, record(done).encode(), headers)


async def rate_limit(service: Service, request: Request) -> Response:
    """GET /api/v1/rate_limit: what is left, at no cost."""
    return codec.answer(rate_limit_headers.content_of(service.limiter, request.verdict, service.clock()))


async def health(_service: Service, _request: Request) -> Response:
    """GET /healthz: the process answers."""
    return codec.answer({"status": "ok"})


async def readiness(service: Service, _request: Request) -> Response:
    """GET /readyz: the service can do its work, and is not about to stop."""
    await service.require_ready()
    if service.limiter is not None and service.limiter.is_shared:
        return codec.answer({"status": "ready", "rate_limit": service.limiter.scope})
    return codec.answer({"status": "ready"})


async def _whole_list(service: Service, request: Request, revision: int, tag: str) -> Response:
    """A list without parameters, which programs ask for again and again."""
    account_id = request.caller.account_id
    answer = request.kept.find(account_id, revision, WHOLE_LIST)
    if answer is None:
        body = codec.list_body(await service.list_listings(request.caller))
        answer = codec.ready(Response(200, body, tag=tag))
        request.kept.keep(account_id, revision, WHOLE_LIST, answer)
    return answer


async def _plain_listing(service: Service, request: Request) -> Response:
    """A listing without parameters; one that was answered before holds if no listing has changed since."""
    account_id, name = request.caller.account_id, request.segment
    settled = service.get_cached_settled_revision(request.caller)
    if settled is None and request.kept.holds(account_id, name):
        settled = await service.get_settled_revision(request.caller)
    answer = request.kept.find(account_id, settled, name) if settled is not None else None
    if answer is None:
        listing_id = codec.listing_id(request.segment)
        listing, revision = await service.get_listing_and_revision(request.caller, listing_id)
        answer = codec.ready(codec.listing_response(listing))
        request.kept.keep(account_id, revision, name, answer)
    return answer


async def _listing(service: Service, request: Request) -> Listing:
    return await service.get_listing(request.caller, codec.listing_id(request.segment))


def _terms(request: Request, *, claimed: bool = False) -> WriteOptions:
    """On what terms a write is asked for (decisions G35, G36). Raises Problem("invalid_request").

    `claimed`: whether it takes an Idempotency-Key; the others are safe to repeat as they are.
    """
    versions = codec.versions_of(request.header_values(b"if-match"))
    dry_run = params.is_dry_run(request.query, strict=request.strict)
    key = codec.idempotency_key(request.header_values(b"idempotency-key")) if claimed else None
    if key is None:
        return WriteOptions(versions, dry_run)
    return WriteOptions(versions, dry_run, key, sha256(request.route.encode() + b"\0" + request.body).digest())


def _edited(done: str, dry_run_result: str, terms: WriteOptions, headers: bytes = b"", tag: str = "") -> Response:
    if terms.dry_run:
        return codec.message_response(dry_run_result, headers)
    return codec.message_response(done, headers, tag)
