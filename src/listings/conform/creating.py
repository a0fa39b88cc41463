"""Checks of create: its response, invalid bodies, and every field."""

from collections.abc import Iterable
from functools import partial

from listings.conform.context import ALL_FIELDS, LOCATION_FIELDS, Context
from listings.conform.records import PRICE_TYPES, TYPES, is_integer
from listings.conform.session import Exchange
from listings.conform.suite import Check, require, require_status, require_success
from listings.conform.verdicts import Blocked, Failed

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


def _check_id(context: Context) -> None:
    """Require integer ids that differ."""
    responses = _list_successful(context)
    require(responses, lambda response: is_integer(response.members.get("id")), "an integer as id")
    if len({response.members["id"] for response in responses}) < len(responses):
        raise Failed(f"two listings have the same id; {responses[0].summary}; {responses[1].summary}")


def _check_message(context: Context) -> None:
    responses = _list_successful(context)
    require(responses, lambda response: isinstance(response.members.get("message"), str), "a string as message")


def _list_successful(context: Context) -> list[Exchange]:
    successful = [response for response in (context.minimal, context.full) if response.succeeded]
    if not successful:
        raise Blocked("no listing could be created")
    return successful


def _check_missing_content(context: Context) -> None:
    """Require 400 without content, and without both title and content."""
    _require_400(context, [{"title": context.session.title_prefix}, {}])


def _check_invalid_json(context: Context) -> None:
    title = context.session.title_prefix.encode()
    _require_400(context, [b"", *(body % title for body in _INVALID_JSON)])


def _require_400(context: Context, bodies: Iterable[dict[str, object] | bytes]) -> None:
    responses = [context.session.send("POST", body=body) for body in bodies]
    for response in responses:
        context.delete_unwanted(response)
    require_status(responses, 400)


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


def _check_field(name: str, context: Context) -> None:
    for value in _ALLOWED.get(name, (ALL_FIELDS.get(name, context.session.title_prefix),)):
        listing_id = _create_with(context, name, value)
        if name in LOCATION_FIELDS:  # these are not part of the record
            continue
        record = context.get_record(listing_id)
        if name in record and not is_same(record[name], value):
            raise Failed(f"listing {listing_id} was created with {name} {value!r} and has {record[name]!r:.200}")


def _create_with(context: Context, name: str, value: object) -> str:
    """Return the id of a listing with the value: the full listing if it has the value, otherwise a new one."""
    full_id = context.full.created_id
    if full_id is not None and context.build_fields(**ALL_FIELDS)[name] == value:
        return full_id
    created = context.session.send("POST", body=context.build_fields(**{name: value}))
    require_success(created, "the field to be accepted")
    if created.id is None:
        raise Blocked(f"the new listing has no id; {created.summary}")
    return created.id


def is_same(shown: object, sent: object) -> bool:
    """Return whether a value equals the value sent. A number may be a string: other checks report wrong types."""
    if isinstance(sent, bool) or not isinstance(sent, int | float) or not isinstance(shown, str):
        return shown == sent
    try:
        return float(shown) == sent
    except ValueError:
        return False


def _check_default_type(context: Context) -> None:
    listing_id = context.minimal.id
    if listing_id is None:
        raise Blocked("no listing could be created")
    shown = context.get_record(listing_id).get("type")
    if shown != "product":
        raise Failed(f"listing {listing_id} was created without a type and has {shown!r:.200}")


CHECKS = (
    Check("create-1", _SECTION, _RESPONSE, lambda context: require_status([context.minimal], 201)),
    Check("create-2", _SECTION, _RESPONSE, _check_id),
    Check("create-3", _SECTION, _RESPONSE, _check_message),
    Check("create-4", _SECTION, _INVALID, lambda context: _require_400(context, [{"content": "Without a title."}])),
    Check("create-5", _SECTION, _INVALID, _check_missing_content),
    Check("create-6", _SECTION, _INVALID, _check_invalid_json),
    *(
        Check(f"field-{number}", _ACCEPTED, row, partial(_check_field, name))
        for number, (name, row) in enumerate(_ROWS.items(), 1)
    ),
    Check("field-13", _ACCEPTED, _ROWS["type"], _check_default_type),
)
