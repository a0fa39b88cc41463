"""Create: what it answers, what it refuses, and that every field is taken in."""

from collections.abc import Iterable

from listings.conform.context import PLACE, SHOWN, Trial
from listings.conform.records import PRICE_TYPES, TYPES, is_integer
from listings.conform.session import Exchange, id_of
from listings.conform.suite import Look, Sheet, require
from listings.conform.verdicts import Broken, Prevented

SHEET = Sheet()
_SECTION = "Endpoints"
_ANSWER = "status 201; JSON object with id (integer) and message (string)"
_REFUSED = "When required fields are missing or the body is not valid JSON on create, the response is 400."
_NO_JSON = (
    b'{"title": "%s", "content": "cut off',
    b"{'title': '%s', 'content': 'in single quotes'}",
    b'{"title": "%s", "content": "with a comma too many",}',
    b'{"title": "%s", "content": "with a price that is no JSON", "price": NaN}',
    b'{"title": "%s", "content": "with something behind"} %%',
)


@SHEET.add("create-1", _SECTION, _ANSWER)
def status_of_a_create(trial: Trial) -> None:
    """Title and content are enough for 201."""
    require([trial.minimal], lambda answer: answer.status == 201, "201")  # noqa: PLR2004 - created


@SHEET.add("create-2", _SECTION, _ANSWER)
def id_of_a_create(trial: Trial) -> None:
    """The id is an integer, and another one for each listing."""
    answers = list(_successful([trial.minimal, trial.full[1]]))
    require(answers, lambda answer: is_integer(answer.members.get("id")), "an integer as id")
    if len({answer.members["id"] for answer in answers}) < len(answers):
        raise Broken(f"two listings have one id; {answers[0].told}; {answers[1].told}")


@SHEET.add("create-3", _SECTION, _ANSWER)
def message_of_a_create(trial: Trial) -> None:
    """There is a message."""
    answers = list(_successful([trial.minimal, trial.full[1]]))
    require(answers, lambda answer: isinstance(answer.members.get("message"), str), "a string as message")


def _successful(answers: Iterable[Exchange]) -> Iterable[Exchange]:
    found = [answer for answer in answers if answer.succeeded]
    if not found:
        raise Prevented("no listing could be made")
    return found


@SHEET.add("create-4", _SECTION, _REFUSED)
def title_is_missing(trial: Trial) -> None:
    """400."""
    _require_400(trial, [{"content": "Without a title."}])


@SHEET.add("create-5", _SECTION, _REFUSED)
def content_is_missing(trial: Trial) -> None:
    """400, and so when all is missing."""
    _require_400(trial, [{"title": trial.session.marker}, {}])


@SHEET.add("create-6", _SECTION, _REFUSED)
def body_is_no_json(trial: Trial) -> None:
    """400 for several ways of not being JSON."""
    title = trial.session.marker.encode()
    _require_400(trial, [b"", *(body % title for body in _NO_JSON)])


def _require_400(trial: Trial, bodies: Iterable[dict[str, object] | bytes]) -> None:
    answers = [trial.session.ask("POST", body=body) for body in bodies]
    for answer in answers:
        trial.discard(answer)
    require(answers, lambda answer: answer.status == 400, "400")  # noqa: PLR2004 - bad request


_ROWS = {
    "title": "title | string | yes | Listing title",
    "content": "content | string | yes | Description",
    "type": "type | string | no | product, service, rental, job; default product",
    "category": "category | string | no | Subcategory",
    "images": "images | array of strings | no | Image URLs",
    "price": "price | number | no | In NZD",
    "price_type": "price_type | string | no | fixed, negotiable, per_hour, per_night",
    "location": "location | string | no | Location info",
    "region": "region | string | no | Location info",
    "district": "district | string | no | Location info",
    "latitude": "latitude | number | no | GPS coordinate",
    "longitude": "longitude | number | no | GPS coordinate",
}
_ALLOWED: dict[str, tuple[str, ...]] = {"type": TYPES, "price_type": PRICE_TYPES}
_ACCEPTED = "Fields accepted on create"


def _look_for(name: str) -> Look:
    def look(trial: Trial) -> None:
        for value in _ALLOWED.get(name, (({**SHOWN, **PLACE}).get(name, trial.session.marker),)):
            listing_id, sent = _created_with(trial, name, value)
            if name not in PLACE:  # nothing says that these are shown
                _require_shown(trial, listing_id, name, sent)

    return look


def _created_with(trial: Trial, name: str, value: object) -> tuple[str, object]:
    """The id of a listing with the value: the full one where that has it, one of its own elsewhere."""
    full_id, _ = trial.full
    if full_id is not None and trial.fields(**SHOWN, **PLACE)[name] == value:
        return full_id, value
    created = trial.session.ask("POST", body=trial.fields(**{name: value}))
    listing_id = id_of(created.members.get("id"))
    if not created.succeeded:
        raise Broken(f"wanted it to be taken in; {created.told}")
    if listing_id is None:
        raise Prevented(f"the new listing has no id; {created.told}")
    return listing_id, value


def _require_shown(trial: Trial, listing_id: str, name: str, sent: object) -> None:
    record = trial.record(listing_id)
    if name in record and not is_same(record[name], sent):
        raise Broken(f"listing {listing_id} was created with {name} {sent!r} and shows {record[name]!r:.200}")


def is_same(shown: object, sent: object) -> bool:
    """Whether a value is what was sent, in whatever type: types are checked on their own."""
    if isinstance(sent, bool) or not isinstance(sent, int | float) or not isinstance(shown, str):
        return shown == sent
    try:
        return float(shown) == sent
    except ValueError:
        return False


for _number, (_name, _row) in enumerate(_ROWS.items(), 1):
    SHEET.add(f"field-{_number}", _ACCEPTED, _row)(_look_for(_name))


@SHEET.add("field-13", _ACCEPTED, _ROWS["type"])
def default_type(trial: Trial) -> None:
    """A listing that was created without a type is a product."""
    listing_id = id_of(trial.minimal.members.get("id"))
    if listing_id is None:
        raise Prevented("no listing could be made")
    shown = trial.record(listing_id).get("type")
    if shown != "product":
        raise Broken(f"listing {listing_id} was created without a type and shows {shown!r:.200}")
