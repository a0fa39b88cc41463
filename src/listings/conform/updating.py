"""Checks of PUT and PATCH: their responses, the changed fields, and that both methods are equivalent."""

from functools import partial

from listings.conform.context import RECORD_FIELDS, UNKNOWN_ID, VOLATILE_FIELDS, Context, Update, is_inactive
from listings.conform.creating import is_same
from listings.conform.session import Body, Exchange
from listings.conform.suite import Check, require_message, require_success
from listings.conform.verdicts import Blocked, Failed

_SECTION = "Endpoints"
_STATES = "States and transitions"
_RECORD = "Listing record (returned by list and by get-one)"
_VIEW_COUNT = "view_count | integer | Read-only counter of views"
_ROW = (
    "PUT or PATCH | /api/v1/listings/{id} | JSON object containing only the fields to change "
    "(for example price, is_active) | JSON object with message (string)"
)
_PARTIAL = "Update is partial: fields not sent are left unchanged."
_PAUSE = (
    "active | PUT or PATCH with is_active false | caller owns the listing | inactive | updated_at is expected to "
    "change only as the service decides; other given fields are also updated"
)
_MANY_VIEWS = 1_000_000
_ONE_FIELD: dict[str, object] = {"price": 75.25}
_ALL_FIELDS: dict[str, object] = {
    "content": "Sleeps four.",
    "type": "rental",
    "category": "Tents",
    "images": ["https://images.example/3.jpg"],
    "price": 75.25,
    "price_type": "per_night",
    "location": "3 Queen Street",
    "region": "Auckland",
}
_INACTIVE_AND_PRICE: dict[str, object] = {"is_active": False, "price": 99.75}


def _check_response(method: str, context: Context) -> None:
    require_message(context.update(method, _ONE_FIELD).exchange)


def _check_all_fields_change(method: str, context: Context) -> None:
    update = context.update(method, {"title": f"{context.session.title_prefix}, changed", **_ALL_FIELDS})
    _require_changes(update, update.changes)


def _check_others_unchanged(method: str, context: Context) -> None:
    update = context.update(method, _ONE_FIELD)
    after = _get_record_after(update)
    others = update.before.keys() - update.changes.keys() - VOLATILE_FIELDS
    changed = sorted(name for name in others if after.get(name) != update.before[name])
    if changed:
        changes = ", ".join(f"{name} from {update.before[name]!r:.60} to {after.get(name)!r:.60}" for name in changed)
        raise Failed(f"{update.exchange.summary} and changed {changes}")


def _check_pause(method: str, context: Context) -> None:
    update = context.update(method, _INACTIVE_AND_PRICE)
    after = _get_record_after(update)
    if not is_inactive(after):
        raise Failed(f"{update.exchange.summary}, but is_active is then {after.get('is_active')!r:.60}")


def _check_pause_with_price(method: str, context: Context) -> None:
    _require_changes(context.update(method, _INACTIVE_AND_PRICE), {"price": 99.75})


def _get_record_after(update: Update) -> dict[str, object]:
    """Raises Failed if the server rejected the update, Blocked if the listing can't be read after it."""
    require_success(update.exchange)
    if update.after is None:
        raise Blocked(f"the listing can't be read after the update; {update.exchange.summary}")
    return update.after


def _require_changes(update: Update, changes: dict[str, object]) -> None:
    after = _get_record_after(update)
    wrong = [name for name, value in changes.items() if name in after and not is_same(after[name], value)]
    if wrong:
        values = ", ".join(f"{name} {after[name]!r:.60}" for name in wrong)
        raise Failed(f"{update.exchange.summary}, but the listing then has {values}")


def _check_put_equals_patch(context: Context) -> None:
    """Require equal responses to equal requests, and equal records after them."""
    first, second = context.create_listing(**RECORD_FIELDS), context.create_listing(**RECORD_FIELDS)
    bodies: tuple[Body, ...] = ({"price": 3, "region": "Otago"}, {}, b'{"price": ')
    for body in bodies:
        _require_equal(
            context.session.send("PUT", f"/{first}", body), context.session.send("PATCH", f"/{second}", body)
        )
    _require_equal(*(context.session.send(method, f"/{UNKNOWN_ID}", {"price": 3}) for method in ("PUT", "PATCH")))
    one, other = context.get_record(first), context.get_record(second)
    ignored = VOLATILE_FIELDS | {"id", "created_at"}
    different = sorted(name for name in one if name not in ignored and one[name] != other.get(name))
    if different:
        raise Failed(f"after the same updates by PUT and by PATCH these fields differ: {', '.join(different)}")


def _require_equal(put: Exchange, patch: Exchange) -> None:
    if put.status != patch.status or put.members.keys() != patch.members.keys():
        raise Failed(f"{put.summary}; {patch.summary}")


def _check_view_count_is_read_only(context: Context) -> None:
    """Require that neither an update nor a create sets the counter. The server may reject or ignore it."""
    listing_id = context.shared_listing
    before = context.get_record(listing_id).get("view_count")
    sent = (before if isinstance(before, int) else 0) + _MANY_VIEWS
    updated = context.session.send("PATCH", f"/{listing_id}", {"view_count": sent})
    _require_fewer_views(context.get_record(listing_id), sent, updated)
    created = context.session.send("POST", body=context.build_fields(view_count=_MANY_VIEWS))
    if created.created_id is not None:
        _require_fewer_views(context.get_record(created.created_id), _MANY_VIEWS, created)


def _require_fewer_views(record: dict[str, object], sent: int, exchange: Exchange) -> None:
    views = record.get("view_count")
    if isinstance(views, int | float) and views >= sent:
        raise Failed(f"{exchange.summary}, but view_count is then {views}")


CHECKS = (
    Check("update-1", _SECTION, _ROW, partial(_check_response, "PUT")),
    Check("update-2", _SECTION, _ROW, partial(_check_response, "PATCH")),
    Check("update-3", _SECTION, _ROW, partial(_check_all_fields_change, "PUT")),
    Check("update-4", _SECTION, _ROW, partial(_check_all_fields_change, "PATCH")),
    Check("update-5", _SECTION, _PARTIAL, partial(_check_others_unchanged, "PUT")),
    Check("update-6", _SECTION, _PARTIAL, partial(_check_others_unchanged, "PATCH")),
    Check("state-1", _STATES, _PAUSE, partial(_check_pause, "PUT")),
    Check("state-2", _STATES, _PAUSE, partial(_check_pause, "PATCH")),
    Check("state-3", _STATES, _PAUSE, partial(_check_pause_with_price, "PUT")),
    Check("state-4", _STATES, _PAUSE, partial(_check_pause_with_price, "PATCH")),
    Check("update-7", _SECTION, "PUT and PATCH behave the same way.", _check_put_equals_patch),
    Check("update-8", _RECORD, _VIEW_COUNT, _check_view_count_is_read_only),
)
