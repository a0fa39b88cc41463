"""One handler an endpoint: from the request to the use case, and from what it returns to the answer."""

from listings.api import wire
from listings.api.request import Request
from listings.api.wire import Answer
from listings.service import Service


async def list_listings(service: Service, request: Request) -> Answer:
    """GET /api/v1/listings."""
    return wire.list_answer(await service.list_listings(request.caller))


async def create_listing(service: Service, request: Request) -> Answer:
    """POST /api/v1/listings."""
    new, headers = wire.new_listing(request.body, strict=request.strict)
    return wire.created_answer(await service.create_listing(request.caller, new), headers)


async def get_listing(service: Service, request: Request) -> Answer:
    """GET /api/v1/listings/{id}."""
    return wire.listing_answer(await service.get_listing(request.caller, wire.listing_id(request.segment)))


async def update_listing(service: Service, request: Request) -> Answer:
    """PUT and PATCH /api/v1/listings/{id}."""
    listing_id = wire.listing_id(request.segment)
    change, headers = wire.listing_change(request.body, strict=request.strict)
    await service.update_listing(request.caller, listing_id, change)
    return wire.message_answer("listing updated", headers)


async def delete_listing(service: Service, request: Request) -> Answer:
    """DELETE /api/v1/listings/{id}."""
    await service.close_listing(request.caller, wire.listing_id(request.segment))
    return wire.message_answer("listing deleted")


async def health(_service: Service, _request: Request) -> Answer:
    """GET /healthz: the process answers."""
    return wire.answer({"status": "ok"})


async def readiness(service: Service, _request: Request) -> Answer:
    """GET /readyz: the service can do its work, and is not about to stop."""
    await service.require_ready()
    return wire.answer({"status": "ready"})
