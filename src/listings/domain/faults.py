"""Faults of fields and parameters: each has a code for programs, a field, and a sentence for people (decision G32)."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn, TypeAlias

from listings.domain.errors import Problem

_MAX_LISTED = 20
_MAX_PREVIEW_LENGTH = 40
_MAX_REASONS, _MAX_REASON_LENGTH, _MAX_NAME_LENGTH = 3, 120, 40
_VALUE = re.compile(r",? got .*|\"[^\"]*\"?", re.DOTALL)
_INDEX = re.compile(r"\[[0-9]+\]")
_SEPARATORS = re.compile(r"[\s_-]+")

FaultCode: TypeAlias = Literal[
    "required",
    "wrong_type",
    "too_long",
    "too_short",
    "too_many",
    "out_of_range",
    "too_many_decimals",
    "not_allowed",
    "invalid_characters",
    "invalid_url",
    "invalid_format",
    "inconsistent",
    "repeated",
    "taken",
    "unknown",
    "misspelled",
]

FAULTS: Mapping[FaultCode, str] = {
    "required": "It is missing or blank.",
    "wrong_type": "It has another JSON type than the field.",
    "too_long": "It has too many characters.",
    "too_short": "It has too few characters.",
    "too_many": "It has too many items.",
    "out_of_range": "The number or the time is too small or too large.",
    "too_many_decimals": "The number has more than two decimals.",
    "not_allowed": "It is not one of the values that are allowed.",
    "invalid_characters": "It contains characters that are not allowed.",
    "invalid_url": "It is not a URL that is allowed.",
    "invalid_format": "It cannot be read, such as a time or a cursor in another form.",
    "inconsistent": "It contradicts another field or parameter.",
    "repeated": "It is given more than once.",
    "taken": "Another listing has it.",
    "unknown": "There is no such field or parameter, and the request is strict.",
    "misspelled": "It is almost the name of a field or parameter.",
}
"""When each code occurs."""


_TYPE_NAMES: Mapping[type, str] = {
    bool: "a boolean",
    str: "a string",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def json_type(value: object) -> str:
    """Return the name of a value's JSON type, with its article."""
    return _TYPE_NAMES[type(value)]


def preview(value: object) -> str:
    """Return the value as JSON of at most 40 characters, for a message. Arrays and objects are shown as their type."""
    if isinstance(value, list | dict):
        return json_type(value)
    if isinstance(value, int) and abs(value) >= 10**39:
        return "a number of 40 digits or more"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_PREVIEW_LENGTH else text[: _MAX_PREVIEW_LENGTH - 3] + "..."


class Fault(NamedTuple):
    """One fault. `field` is a path such as `images[0]`; `message` is a whole sentence."""

    field: str
    code: FaultCode
    message: str

    def within(self, parent: str) -> "Fault":
        """Return the same fault of a field inside the object `parent`. A message may begin with a quoted name."""
        quote = '"' if self.message.startswith('"') else ""
        return Fault(f"{parent}.{self.field}", self.code, f"{quote}{parent}.{self.message.removeprefix(quote)}")


class FieldError(ValueError):
    """An invalid value. The message continues a sentence that begins with the field's name: "must be a string"."""

    def __init__(self, message: str, code: FaultCode = "invalid_format") -> None:
        super().__init__(message)
        self.code = code

    def locate(self, field: str) -> Fault:
        """Return the fault of a field. A message that begins with an index, such as `[0]`, is about that element."""
        index, _, rest = str(self).partition(" ") if str(self).startswith("[") else ("", "", str(self))
        return Fault(field + index, self.code, f"{field}{index} {rest}")


class InvalidFieldsError(Problem):
    """A request with invalid fields or parameters."""

    def __init__(self, faults: Sequence[Fault], lead: str = "") -> None:
        """`lead` precedes the messages of the faults."""
        messages = [fault.message for fault in faults[:_MAX_LISTED]]
        messages += [f"and {len(faults) - _MAX_LISTED} more"] if len(faults) > _MAX_LISTED else []
        super().__init__("invalid_request", lead + "; ".join(messages))
        self.faults = faults

    @property
    def errors(self) -> Mapping[str, str]:
        """The sentence for each field, by its name without an index."""
        return {fault.field.partition("[")[0]: fault.message for fault in self.faults}


def list_faults(problem: Problem) -> Sequence[Fault]:
    """Return the faults of a rejected request, if they are those of fields."""
    if isinstance(problem, InvalidFieldsError):
        return problem.faults
    return [Fault("external_id", "taken", problem.message)] if problem.code == "external_id_taken" else []


def describe_reason(problem: Problem) -> str:
    """Return why a request was rejected, without the values that it contained: "title: required"."""
    faults = list_faults(problem)
    if not faults:
        return _VALUE.sub("", problem.message)[:_MAX_REASON_LENGTH]
    reasons = dict.fromkeys(f"{_INDEX.sub('', fault.field)[:_MAX_NAME_LENGTH]}: {fault.code}" for fault in faults)
    return ", ".join(list(reasons)[:_MAX_REASONS])


def reject(field: str, code: FaultCode, message: str) -> NoReturn:
    """Raise InvalidFieldsError with one fault."""
    raise InvalidFieldsError([Fault(field, code, message)])


def fold_name(name: str) -> str:
    """Return a name without case, hyphens, underscores and blanks."""
    return _SEPARATORS.sub("", name).casefold()


def find_misspelled(
    unknown: Iterable[str], known: Iterable[str], given: Mapping[str, object], kind: str
) -> list[Fault]:
    """Return a fault for each unknown field of a body that is probably a known one which is not `given`.

    `dry_run` is one as well, unless it is false. `kind` continues a sentence: "a field that can be set".
    """
    meant = {fold_name(name): f"{name}?" for name in known if name not in given}
    meant["dryrun"] = "dry_run? It is a query parameter"
    return [
        Fault(name, "misspelled", f"{json.dumps(name, ensure_ascii=False)} is not {kind}: did you mean {hint}")
        for name in unknown
        if (hint := meant.get(fold_name(name))) is not None and (hint != meant["dryrun"] or given[name] is not False)
    ]


def raise_faults(faults: Iterable[Fault]) -> None:
    """Raise InvalidFieldsError, which lists the faults without repetitions, unless there are none."""
    distinct = list(dict.fromkeys(faults))
    if distinct:
        raise InvalidFieldsError(distinct)
