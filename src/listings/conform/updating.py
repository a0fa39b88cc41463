"""Checks of PUT and PATCH: their responses, the changed fields, and that both methods are equivalent."""

from typing import Any

from listings.conform.context import RECORD_FIELDS, UNKNOWN_ID, VOLATILE_FIELDS, Context, Update, is_inactive
from listings.conform.creating import is_same
from listings.conform.session import Exchange, parse_id
from listings.conform.suite import CheckFunction, Suite
from listings.conform.verdicts import Blocked, Failed

SUITE = Suite()
_SECTION = "Endpoints"
_STATES = "States and transitions"
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


def _check_response(method: str) -> CheckFunction:
    def check(context: Context) -> None:
        response = context.partial_update(method).exchange
        if not response.succeeded or not isinstance(response.members.get("message"), str):
            raise Failed(f"expected success and a JSON object with a string as message; {response.summary}")

    return check


def _check_all_fields_change(method: str) -> CheckFunction:
    def check(context: Context) -> None:
        update = _require_success(context.full_update(method))
        _require_changes(update, update.changes)

    return check


def _check_others_unchanged(method: str) -> CheckFunction:
    def check(context: Context) -> None:
        update = _require_success(context.partial_update(method))
        others = update.before.keys() - update.changes.keys() - VOLATILE_FIELDS
        changed = sorted(name for name in others if _after(update).get(name) != update.before[name])
        if changed:
            changes = ", ".join(
                f"{name} from {update.before[name]!r:.60} to {_after(update).get(name)!r:.60}" for name in changed
            )
            raise Failed(f"{update.exchange.summary} and changed {changes}")

    return check


def _check_pause(method: str) -> CheckFunction:
    def check(context: Context) -> None:
        update = _require_success(context.pause(method))
        after = _after(update)
        if not is_inactive(after):
            raise Failed(f"{update.exchange.summary}, but is_active is then {after.get('is_active')!r:.60}")

    return check


def _check_pause_with_price(method: str) -> CheckFunction:
    def check(context: Context) -> None:
        _require_changes(_require_success(context.pause(method)), {"price": 99.75})

    return check


def _require_success(update: Update) -> Update:
    """Raises Failed if the server rejected the update, Blocked if the listing can't be read after it."""
    if not update.exchange.succeeded:
        raise Failed(f"expected success; {update.exchange.summary}")
    if update.after is None:
        raise Blocked(f"the listing can't be read after the update; {update.exchange.summary}")
    return update


def _after(update: Update) -> dict[str, object]:
    return update.after or {}


def _require_changes(update: Update, changes: dict[str, object]) -> None:
    after = _after(update)
    wrong = [name for name, value in changes.items() if name in after and not is_same(after[name], value)]
    if wrong:
        values = ", ".join(f"{name} {after[name]!r:.60}" for name in wrong)
        raise Failed(f"{update.exchange.summary}, but the listing then has {values}")


_ROWS = (
    ("update-1", _SECTION, _ROW, _check_response("PUT")),
    ("update-2", _SECTION, _ROW, _check_response("PATCH")),
    ("update-3", _SECTION, _ROW, _check_all_fields_change("PUT")),
    ("update-4", _SECTION, _ROW, _check_all_fields_change("PATCH")),
    ("update-5", _SECTION, _PARTIAL, _check_others_unchanged("PUT")),
    ("update-6", _SECTION, _PARTIAL, _check_others_unchanged("PATCH")),
    ("state-1", _STATES, _PAUSE, _check_pause("PUT")),
    ("state-2", _STATES, _PAUSE, _check_pause("PATCH")),
    ("state-3", _STATES, _PAUSE, _check_pause_with_price("PUT")),
    ("state-4", _STATES, _PAUSE, _check_pause_with_price("PATCH")),
)
for _identifier, _section, _sentence, _function in _ROWS:
    SUITE.add(_identifier, _section, _sentence)(_function)


@SUITE.add("update-7", _SECTION, "PUT and PATCH behave the same way.")
def check_put_equals_patch(context: Context) -> None:
    """Require equal responses to equal requests, and equal records after them."""
    first, second = context.create_listing(**RECORD_FIELDS), context.create_listing(**RECORD_FIELDS)
    bodies: tuple[Any, ...] = ({"price": 3, "region": "Otago"}, {}, b'{"price": ')
    for body in bodies:
        _require_equal(
            context.session.send("PUT", f"/{first}", body),
            context.session.send("PATCH", f"/{second}", body),
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


@SUITE.add(
    "update-8", "Listing record (returned by list and by get-one)", "view_count | integer | Read-only counter of views"
)
def check_view_count_is_read_only(context: Context) -> None:
    """Require that neither an update nor a create sets the counter. The server may reject or ignore it."""
    listing_id = context.shared_listing
    before = context.get_record(listing_id).get("view_count")
    sent = (before if isinstance(before, int) else 0) + _MANY_VIEWS
    updated = context.session.send("PATCH", f"/{listing_id}", {"view_count": sent})
    _require_fewer_views(context.get_record(listing_id), sent, updated)
    created = context.session.send("POST", body=context.build_fields(view_count=_MANY_VIEWS))
    created_id = parse_id(created.members.get("id"))
    if created.succeeded and created_id is not None:
        _require_fewer_views(context.get_record(created_id), _MANY_VIEWS, created)


def _require_fewer_views(record: dict[str, object], sent: int, exchange: Exchange) -> None:
    views = record.get("view_count")
    if isinstance(views, int | float) and views >= sent:
        raise Failed(f"{exchange.summary}, but view_count is then {views}")
