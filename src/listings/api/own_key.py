"""GET /api/v1/key: the key that sends the request, with the plan and the size of its account."""

from collections.abc import Mapping

from listings.api import codec
from listings.api.codec import Response
from listings.api.request import Request
from listings.domain import timestamps
from listings.domain.account_limits import UNLIMITED, none_if_unlimited
from listings.service import Services


async def get_key(services: Services, request: Request) -> Response:
    """GET /api/v1/key. It has no email address and no name of the account, because the key may be read-only."""
    caller = request.caller
    key = await services.keys.get(caller.key_id)
    counts, limits = await services.listings.measure(caller)
    budget = min(limits.compute_budget(counts.text_bytes), UNLIMITED)
    picture_bytes, max_picture_bytes = await services.pictures.measure(caller.account_id)
    body: Mapping[str, object] = {
        "id": key.id,
        "account_id": caller.account_id,
        "name": key.name,
        "access": key.access,
        "mode": "live" if caller.test_of is None else "test",
        "expires_at": _format_time(key.expires_at),
        "plan_expires_at": _format_time(caller.plan_expires_at),
        "listings": {"active": counts.active, "inactive": counts.inactive, "deleted": counts.deleted},
        "text_bytes": counts.text_bytes,
        "stored_bytes": counts.stored_bytes,
        "picture_bytes": picture_bytes,
        "limits": {
            "listings": none_if_unlimited(limits.listings),
            "text_bytes": none_if_unlimited(limits.text_bytes),
            "stored_bytes": none_if_unlimited(budget),
            "picture_bytes": none_if_unlimited(max_picture_bytes),
        },
    }
    return codec.build_json_response(body)


def _format_time(moment: int | None) -> str | None:
    return None if moment is None else timestamps.format_timestamp(moment)
