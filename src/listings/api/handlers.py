"""One handler per endpoint: parse the request, call the use case, build the response."""

from contextlib import nullcontext
from functools import partial
from hashlib import sha256
from time import perf_counter

from listings.api import batch, codec, params, rate_limit_headers
from listings.api.codec import Response
from listings.api.request import Request
from listings.api.response_cache import WHOLE_LIST
from listings.domain.errors import Problem
from listings.domain.listing_json import NO_EXTRA_FIELDS
from listings.domain.model import Listing
from listings.http.asgi import ASKING_BYTES
from listings.service import Services
from listings.service.listings.steps import WriteOptions


async def list_listings(services: Services, request: Request) -> Response:
    """GET /api/v1/listings."""
    wanted = params.parse_list(request.query, services.restore_id, strict=request.strict)
    revisions = await services.listings.get_revisions(request.caller)
    revision, tag = revisions.revision, wanted.format_etag(request.caller.account_id, revisions)
    current = request.find_current_tag(tag)
    if current:
        return Response(304, b"", tag=current)
    cached = None if wanted.pairs else request.cache.find(request.caller.account_id, revision, WHOLE_LIST)
    if cached is not None:
        return cached
    is_gzip = request.encodings.min_bytes is not None
    return await request.lists.get(request.cache, request.caller, wanted, revision, tag, is_gzip=is_gzip)


async def create_listing(services: Services, request: Request) -> Response:
    """POST /api/v1/listings."""
    options = parse_options(request, idempotent=True)
    new, headers = codec.parse_new_listing(request.body, strict=request.strict)
    added = await services.listings.create(request.caller, new, options)
    if options.dry_run and not added.replayed:
        return codec.build_message_response("listing would be created", headers)
    listing = await _find_created(services, request, added.listing_id) if request.wants_representation else None
    return codec.build_created_response(added, headers, services.about.base_url, services.restore_id, listing)


async def get_listing(services: Services, request: Request) -> Response:
    """GET /api/v1/listings/{id}."""
    if not request.query:
        response = await request.cache.find_listing(request.caller, request.segment)
        if response is None:
            response = await _read_plain_listing(services, request)
    else:
        wanted = params.parse(request.query, params.LISTING_PARAMETERS, strict=request.strict)
        listing = await services.listings.get(request.caller, codec.parse_listing_id(request.segment))
        include = wanted.get("include", NO_EXTRA_FIELDS)
        response = codec.build_listing_response(listing, services.restore_id, include)
    request.require_match(response.tag)
    current = request.find_current_tag(response.tag)
    return Response(304, b"", tag=current) if current else response


async def update_listing(services: Services, request: Request) -> Response:
    """PUT and PATCH /api/v1/listings/{id}."""
    options = parse_options(request)
    listing_id = codec.parse_listing_id(request.segment)
    change, headers = codec.parse_listing_change(request.body, strict=request.strict)
    listing = await services.listings.update(request.caller, listing_id, change, options)
    if options.dry_run:
        return codec.build_message_response("listing would be updated", headers)
    return _build_edited(services, request, "listing updated", listing, headers)


async def delete_listing(services: Services, request: Request) -> Response:
    """DELETE /api/v1/listings/{id}."""
    options = parse_options(request)
    await services.listings.delete(request.caller, codec.parse_listing_id(request.segment), options)
    return codec.build_message_response("listing would be deleted" if options.dry_run else "listing deleted")


async def restore_listing(services: Services, request: Request) -> Response:
    """POST /api/v1/listings/{id}/restore."""
    options = parse_options(request)
    listing = await services.listings.restore(request.caller, codec.parse_listing_id(request.segment), options)
    if options.dry_run:
        return codec.build_message_response("listing would be restored")
    return _build_edited(services, request, "listing restored", listing)


async def run_batch(services: Services, request: Request) -> Response:
    """POST /api/v1/listings/batch."""
    state = codec.parse_state_condition(
        request.header_values(b"if-match"), request.caller.account_id, services.restore_id
    )
    options = parse_options(request, idempotent=True)._replace(state=state)
    if options.dry_run:
        request.require_room(ASKING_BYTES)
    wait_for_turn = request.dry_runs.acquire if options.dry_run else nullcontext
    async with wait_for_turn(request.caller.account_id):
        parsed = await batch.parse(request.body, strict=request.strict, must_be_atomic=state is not None)
    steps = [operation.step(services, request.caller) for operation in parsed.operations]
    encode = partial(
        parsed.encode, request.caller, services.restore_id, dry_run=options.dry_run, detailed=request.wants_details
    )
    outcome = await services.listings.run_batch(
        request.caller, steps, lambda it: b"".join(encode(it)).decode(), options, atomic=parsed.atomic
    )
    headers = codec.build_preference_headers(parsed.ignored, strict=request.strict)
    if request.wants_details:
        headers += codec.DETAILED.encode()
    if isinstance(outcome, str):  # recorded under the same Idempotency-Key
        return batch.build_response(outcome.encode(), codec.REPLAYED + headers)
    async with wait_for_turn(request.caller.account_id):
        return batch.build_response(await batch.join(encode(outcome)), headers)


async def list_changes(services: Services, request: Request) -> Response:
    """GET /api/v1/changes."""
    poll, since, until = params.parse_changes(request.query, strict=request.strict)
    if not poll.limit:
        last = await services.changes.get_last_id(request.caller)
        return codec.build_json_response({"change_sets": [], "last": last, "more": False})
    end = None
    if since is not None:
        poll = poll._replace(after=max(poll.after, await services.changes.find_before(request.caller, since)))
    if until is not None:
        end = await services.changes.find_before(request.caller, until + 1)
    if poll.timeout and end is None:
        started = perf_counter()
        await services.change_waits.wait(request.caller, poll, request.wait_for_close)
        services.access.require_plan(await services.access.authenticate(request.read_key()))
        if request.decision is not None:
            request.decision = rate_limit_headers.advance(request.decision, perf_counter() - started)
    is_gzip = request.encodings.min_bytes is not None
    async with request.lists.histories.acquire(request.caller.account_id):
        return await request.lists.get_changes(request.caller, poll.after, poll.limit, end, is_gzip=is_gzip)


async def list_listing_changes(services: Services, request: Request) -> Response:
    """GET /api/v1/listings/{id}/changes."""
    before, count = params.parse_history(request.query, strict=request.strict)
    listing_id = codec.parse_listing_id(request.segment)
    await services.listings.require_own(request.caller, listing_id)
    async with request.lists.histories.acquire(request.caller.account_id):
        page = await services.changes.read_of_listing(listing_id, before, count)
        actors = await services.changes.list_actors(request.caller.account_id)
        return await codec.build_history_response(page, actors, before)


async def list_change_groups(services: Services, request: Request) -> Response:
    """GET /api/v1/changes/groups."""
    before, count = params.parse_history(request.query, strict=request.strict)
    page = await services.changes.list_groups(request.caller, before, count)
    return codec.build_groups_response(page, await services.changes.list_actors(request.caller.account_id))


async def get_rate_limit(services: Services, request: Request) -> Response:
    """GET /api/v1/rate_limit. Does not count as a request."""
    return codec.build_json_response(
        rate_limit_headers.build_body(services.limiter, request.decision, services.clock())
    )


async def get_health(_services: Services, _request: Request) -> Response:
    """GET /healthz: the process responds."""
    return codec.build_json_response({"status": "ok"})


async def get_readiness(services: Services, _request: Request) -> Response:
    """GET /readyz: the service can do its work and is not shutting down."""
    await services.require_ready()
    body: dict[str, object] = {"status": "ready"}
    if services.limiter is not None and services.limiter.is_distributed:
        body["rate_limit"] = services.limiter.scope
    if degraded := await services.list_degradations():
        body["degraded"] = degraded
    return codec.build_json_response(body)


async def _read_plain_listing(services: Services, request: Request) -> Response:
    listing_id = codec.parse_listing_id(request.segment)
    listing, revision = await services.listings.get_with_revision(request.caller, listing_id)
    response = codec.with_head(codec.build_listing_response(listing, services.restore_id))
    return request.cache.store(request.caller.account_id, revision, request.segment, response)


def parse_options(request: Request, *, idempotent: bool = False) -> WriteOptions:
    """Parse the options of a write (decisions G36, G54). Raises Problem("invalid_request").

    `idempotent`: whether the write accepts an Idempotency-Key. The others are safe to repeat without one, and accept
    If-Match and If-None-Match.
    """
    dry_run = params.parse_dry_run(request.query, strict=request.strict)
    group = codec.parse_change_group(request.header_values(b"x-change-group"))
    if not idempotent:
        versions = codec.parse_if_match(request.header_values(b"if-match"))
        none_match = request.header_values(b"if-none-match")
        excluded = codec.parse_if_match(none_match, "If-None-Match") if none_match else frozenset()
        return WriteOptions(versions, dry_run, excluded=excluded, group=group)
    key = codec.parse_idempotency_key(request.header_values(b"idempotency-key"))
    if key is None:
        return WriteOptions(dry_run=dry_run, group=group)
    digest = sha256(request.route.encode() + b"\0" + request.body).digest()
    return WriteOptions(dry_run=dry_run, idempotency_key=key, digest=digest, group=group)


async def _find_created(services: Services, request: Request, listing_id: int) -> Listing | None:
    try:
        listing = await services.listings.get(request.caller, listing_id)
    except Problem:  # the write has happened, so the response is a success all the same
        return None
    return listing if request.has_room(listing) else None


def _build_edited(
    services: Services, request: Request, message: str, listing: Listing, headers: bytes = b""
) -> Response:
    if request.wants_representation and request.has_room(listing):
        return codec.build_representation(listing, services.restore_id, headers)
    return codec.build_message_response(message, headers, codec.format_etag(listing, services.restore_id))
