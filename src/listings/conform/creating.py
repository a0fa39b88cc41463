"""Checks of create: its response, invalid bodies, and every field."""

from collections.abc import Iterable

from listings.conform.context import LOCATION_FIELDS, RECORD_FIELDS, Context
from listings.conform.records import PRICE_TYPES, TYPES, is_integer
from listings.conform.session import Exchange, parse_id
from listings.conform.suite import CheckFunction, Suite, require
from listings.conform.verdicts import Blocked, Failed

SUITE = Suite()
_SECTION = "Endpoints"
_RESPONSE = "status 201; JSON object with id (integer) and message (string)"
_INVALID = "When required fields are missing or the body is not valid JSON on create, the response is 400."
_INVALID_JSON = (
    b'{"title": "%s", "content": "cut off',
    b"{'title': '%s', 'content': 'in single quotes'}",
    b'{"title": "%s", "content": "with a trailing comma",}',
    b'{"title": "%s", "content": "with NaN as price", "price": NaN}',
    b'{"title": "%s", "content": "with text after the object"} %%',
)


@SUITE.add("create-1", _SECTION, _RESPONSE)
def check_create_status(context: Context) -> None:
    """Require 201 for a title and content only."""
    require([context.minimal], lambda response: response.status == 201, "201")  # noqa: PLR2004 - created


@SUITE.add("create-2", _SECTION, _RESPONSE)
def check_create_id(context: Context) -> None:
    """Require integer ids that differ."""
    responses = list(_successful([context.minimal, context.full[1]]))
    require(responses, lambda response: is_integer(response.members.get("id")), "an integer as id")
    if len({response.members["id"] for response in responses}) < len(responses):
        raise Failed(f"two listings have the same id; {responses[0].summary}; {responses[1].summary}")


@SUITE.add("create-3", _SECTION, _RESPONSE)
def check_create_message(context: Context) -> None:
    """Require a string as message."""
    responses = list(_successful([context.minimal, context.full[1]]))
    require(responses, lambda response: isinstance(response.members.get("message"), str), "a string as message")


def _successful(responses: Iterable[Exchange]) -> Iterable[Exchange]:
    successful = [response for response in responses if response.succeeded]
    if not successful:
        raise Blocked("no listing could be created")
    return successful


@SUITE.add("create-4", _SECTION, _INVALID)
def check_missing_title(context: Context) -> None:
    """Require 400 without a title."""
    _require_400(context, [{"content": "Without a title."}])


@SUITE.add("create-5", _SECTION, _INVALID)
def check_missing_content(context: Context) -> None:
    """Require 400 without content, and without both title and content."""
    _require_400(context, [{"title": context.session.title_prefix}, {}])


@SUITE.add("create-6", _SECTION, _INVALID)
def check_invalid_json(context: Context) -> None:
    """Require 400 for several kinds of invalid JSON."""
    title = context.session.title_prefix.encode()
    _require_400(context, [b"", *(body % title for body in _INVALID_JSON)])


def _require_400(context: Context, bodies: Iterable[dict[str, object] | bytes]) -> None:
    responses = [context.session.send("POST", body=body) for body in bodies]
    for response in responses:
        context.delete_unwanted(response)
    require(responses, lambda response: response.status == 400, "400")  # noqa: PLR2004 - bad request


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


def _check_field(name: str) -> CheckFunction:
    def check(context: Context) -> None:
        for value in _ALLOWED.get(
            name, (({**RECORD_FIELDS, **LOCATION_FIELDS}).get(name, context.session.title_prefix),)
        ):
            listing_id, sent = _create_with(context, name, value)
            if name not in LOCATION_FIELDS:  # these are not part of the record
                _require_value(context, listing_id, name, sent)

    return check


def _create_with(context: Context, name: str, value: object) -> tuple[str, object]:
    """Return the id of a listing with the value: the full listing if it has the value, otherwise a new one."""
    full_id, _ = context.full
    if full_id is not None and context.build_fields(**RECORD_FIELDS, **LOCATION_FIELDS)[name] == value:
        return full_id, value
    created = context.session.send("POST", body=context.build_fields(**{name: value}))
    listing_id = parse_id(created.members.get("id"))
    if not created.succeeded:
        raise Failed(f"expected the field to be accepted; {created.summary}")
    if listing_id is None:
        raise Blocked(f"the new listing has no id; {created.summary}")
    return listing_id, value


def _require_value(context: Context, listing_id: str, name: str, sent: object) -> None:
    record = context.get_record(listing_id)
    if name in record and not is_same(record[name], sent):
        raise Failed(f"listing {listing_id} was created with {name} {sent!r} and has {record[name]!r:.200}")


def is_same(shown: object, sent: object) -> bool:
    """Return whether a value equals the value sent. A number may be a string: other checks report wrong types."""
    if isinstance(sent, bool) or not isinstance(sent, int | float) or not isinstance(shown, str):
        return shown == sent
    try:
        return float(shown) == sent
    except ValueError:
        return False


for _number, (_name, _row) in enumerate(_ROWS.items(), 1):
    SUITE.add(f"field-{_number}", _ACCEPTED, _row)(_check_field(_name))


@SUITE.add("field-13", _ACCEPTED, _ROWS["type"])
def check_default_type(context: Context) -> None:
    """Require that a listing created without a type is a product."""
    listing_id = parse_id(context.minimal.members.get("id"))
    if listing_id is None:
        raise Blocked("no listing could be created")
    shown = context.get_record(listing_id).get("type")
    if shown != "product":
        raise Failed(f"listing {listing_id} was created without a type and has {shown!r:.200}")
