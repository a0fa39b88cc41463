"""JSON Schemas of the rules of fields and parameters, with the very bounds that the rules have.

A pattern says in the regular expressions of ECMA-262 what its rule does; it names white space by code points, since
dialects do not agree on what it is.
"""

from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any, TypeAlias, get_args

from listings.api import params
from listings.domain import fields
from listings.domain.fields import Choice, Coordinate, Flag, Images, Money, Text
from listings.domain.model import SortKey

Schema: TypeAlias = dict[str, Any]

_SPACE = r"\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_UNFIT = _SPACE + r"\u0000-\u001f\u007f-\u009f\\"
_ADDRESS = (
    rf"^(?:[Hh][Tt][Tt][Pp][Ss]?://[^@:/?#{_UNFIT}][^@/?#{_UNFIT}]*(?:[/?#][^{_UNFIT}]*)?"
    rf"|[A-Za-z][A-Za-z0-9+.-]*(?:[^A-Za-z0-9+.:{_UNFIT}-][^{_UNFIT}]*)?"  # relative: no colon ends the first word
    rf"|[^A-Za-z{_UNFIT}][^{_UNFIT}]*)$"
)
_MONTHS_AND_DAYS = (
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_BY_FOUR = r"(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = rf"[0-9]{{2}}{_BY_FOUR}|{_BY_FOUR}00"
_YEAR = r"[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3}"
_MOMENT = (
    rf"^(?:(?:{_YEAR})-(?:{_MONTHS_AND_DAYS})|(?:{_LEAP_YEAR})-02-29)"
    r"(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+ ]00:00)?)?$"
)


@singledispatch
def schema_of(rule: object) -> Schema:
    """What a rule takes."""
    return dict(_OF_FUNCTIONS[rule])  # type: ignore[index]  # those rules that are no classes


@schema_of.register
def _(rule: Text) -> Schema:
    if rule.allow_blank:
        return {"type": "string", "maxLength": rule.max_length, "pattern": r"^[^\u0000]*$"}
    pattern = rf"^[^\u0000]*[^\u0000{_SPACE}][^\u0000]*$"
    return {"type": "string", "minLength": 1, "maxLength": rule.max_length, "pattern": pattern}


@schema_of.register
def _(rule: Choice) -> Schema:
    return {"type": "string", "enum": list(rule.allowed)}


@schema_of.register
def _(_rule: Flag) -> Schema:
    return {"type": "boolean"}


@schema_of.register
def _(rule: Money) -> Schema:
    return {"type": "number", "minimum": 0, "maximum": rule.max_cents / 100}


@schema_of.register
def _(rule: Coordinate) -> Schema:
    return {"type": "number", "minimum": rule.minimum, "maximum": rule.maximum}


@schema_of.register
def _(rule: Images) -> Schema:
    address = {"type": "string", "minLength": 1, "maxLength": rule.max_length, "pattern": _ADDRESS}
    return {"type": "array", "maxItems": rule.max_items, "items": address}


@schema_of.register
def _(rule: params.Count) -> Schema:
    return {"type": "integer", "minimum": rule.least, "maximum": rule.most}


@schema_of.register
def _(rule: params.Amount) -> Schema:
    return schema_of(rule.money)


@schema_of.register
def _(rule: params.Several) -> Schema:
    return {"type": "array", "minItems": 1, "items": {"type": "string", "enum": [*rule.allowed, "all"]}}


_OF_FUNCTIONS: Mapping[Callable[[str], Any], Schema] = {
    params.moment: {"type": "string", "pattern": _MOMENT},
    params.search_terms: {"type": "string", "minLength": 1, "maxLength": params.LONGEST_SEARCH},
    params.order: {"type": "string", "enum": [f"{sign}{name}" for name in get_args(SortKey) for sign in ("", "-")]},
    params.truth: {"type": "boolean"},
    params.cursor_text: {"type": "string", "maxLength": params.LONGEST_CURSOR},
}


def field_schema(name: str, *, example: object = None) -> Schema:
    """What a body may give for a field that can be set, without null."""
    schema = schema_of(fields.FIELDS[name].rule)
    return schema if example is None else schema | {"examples": [example]}


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    more: Schema = {"type": [schema["type"], "null"]}
    if "enum" in schema:
        more["enum"] = [*schema["enum"], None]
    return schema | more
