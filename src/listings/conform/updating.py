"""PUT and PATCH: what they answer, what they change and what they leave alone, and that they are the same."""

from typing import Any

from listings.conform.context import NOT_COMPARED, SHOWN, UNKNOWN_ID, Trial, Update, is_off
from listings.conform.creating import is_same
from listings.conform.session import Exchange, id_of
from listings.conform.suite import Look, Sheet
from listings.conform.verdicts import Broken, Prevented

SHEET = Sheet()
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
_FAR_MORE = 1_000_000


def _answers(method: str) -> Look:
    def look(trial: Trial) -> None:
        answer = trial.partial_update(method).exchange
        if not answer.succeeded or not isinstance(answer.members.get("message"), str):
            raise Broken(f"wanted success and a JSON object with a string as message; {answer.told}")

    return look


def _changes(method: str) -> Look:
    def look(trial: Trial) -> None:
        update = _carried_out(trial.full_update(method))
        _require_changed(update, update.changes)

    return look


def _leaves_the_rest(method: str) -> Look:
    def look(trial: Trial) -> None:
        update = _carried_out(trial.partial_update(method))
        others = update.before.keys() - update.changes.keys() - NOT_COMPARED
        changed = sorted(name for name in others if _after(update).get(name) != update.before[name])
        if changed:
            told = ", ".join(
                f"{name} {update.before[name]!r:.60} to {_after(update).get(name)!r:.60}" for name in changed
            )
            raise Broken(f"{update.exchange.told}, and changed {told}")

    return look


def _pauses(method: str) -> Look:
    def look(trial: Trial) -> None:
        update = _carried_out(trial.pause(method))
        if not is_off(_after(update)):
            raise Broken(f"{update.exchange.told}, and then is_active is {_after(update).get('is_active')!r:.60}")

    return look


def _updates_others_too(method: str) -> Look:
    def look(trial: Trial) -> None:
        _require_changed(_carried_out(trial.pause(method)), {"price": 99.75})

    return look


def _carried_out(update: Update) -> Update:
    """Raises Broken for a refusal, Prevented when the outcome can't be read."""
    if not update.exchange.succeeded:
        raise Broken(f"wanted success; {update.exchange.told}")
    if update.after is None:
        raise Prevented(f"the listing can't be read after it; {update.exchange.told}")
    return update


def _after(update: Update) -> dict[str, object]:
    return update.after or {}


def _require_changed(update: Update, changes: dict[str, object]) -> None:
    after = _after(update)
    wrong = [name for name, value in changes.items() if name in after and not is_same(after[name], value)]
    if wrong:
        told = ", ".join(f"{name} {after[name]!r:.60}" for name in wrong)
        raise Broken(f"{update.exchange.told}, and then shows {told}")


_ROWS = (
    ("update-1", _SECTION, _ROW, _answers("PUT")),
    ("update-2", _SECTION, _ROW, _answers("PATCH")),
    ("update-3", _SECTION, _ROW, _changes("PUT")),
    ("update-4", _SECTION, _ROW, _changes("PATCH")),
    ("update-5", _SECTION, _PARTIAL, _leaves_the_rest("PUT")),
    ("update-6", _SECTION, _PARTIAL, _leaves_the_rest("PATCH")),
    ("state-1", _STATES, _PAUSE, _pauses("PUT")),
    ("state-2", _STATES, _PAUSE, _pauses("PATCH")),
    ("state-3", _STATES, _PAUSE, _updates_others_too("PUT")),
    ("state-4", _STATES, _PAUSE, _updates_others_too("PATCH")),
)
for _identifier, _section, _sentence, _look in _ROWS:
    SHEET.add(_identifier, _section, _sentence)(_look)


@SHEET.add("update-7", _SECTION, "PUT and PATCH behave the same way.")
def both_methods_do_the_same(trial: Trial) -> None:
    """The same changes of two equal listings are answered alike and lead to equal records."""
    first, second = trial.listing(**SHOWN), trial.listing(**SHOWN)
    bodies: tuple[Any, ...] = ({"price": 3, "region": "Otago"}, {}, b'{"price": ')
    for body in bodies:
        _require_alike(
            trial.session.ask("PUT", f"/{first}", body),
            trial.session.ask("PATCH", f"/{second}", body),
        )
    _require_alike(*(trial.session.ask(method, f"/{UNKNOWN_ID}", {"price": 3}) for method in ("PUT", "PATCH")))
    one, other = trial.record(first), trial.record(second)
    unequal = NOT_COMPARED | {"id", "created_at"}
    different = sorted(name for name in one if name not in unequal and one[name] != other.get(name))
    if different:
        raise Broken(f"the same changes by PUT and by PATCH led to different values of {', '.join(different)}")


def _require_alike(put: Exchange, patch: Exchange) -> None:
    if put.status != patch.status or put.members.keys() != patch.members.keys():
        raise Broken(f"{put.told}; {patch.told}")


@SHEET.add(
    "update-8", "Listing record (returned by list and by get-one)", "view_count | integer | Read-only counter of views"
)
def views_are_read_only(trial: Trial) -> None:
    """Neither an update nor a create sets the counter, whether it refuses or ignores it."""
    listing_id = trial.lasting
    before = trial.record(listing_id).get("view_count")
    wanted = (before if isinstance(before, int) else 0) + _FAR_MORE
    asked = trial.session.ask("PATCH", f"/{listing_id}", {"view_count": wanted})
    _require_less(trial.record(listing_id), wanted, asked)
    created = trial.session.ask("POST", body=trial.fields(view_count=_FAR_MORE))
    created_id = id_of(created.members.get("id"))
    if created.succeeded and created_id is not None:
        _require_less(trial.record(created_id), _FAR_MORE, created)


def _require_less(record: dict[str, object], wanted: int, asked: Exchange) -> None:
    shown = record.get("view_count")
    if isinstance(shown, int | float) and shown >= wanted:
        raise Broken(f"{asked.told}, and then view_count is {shown}")
