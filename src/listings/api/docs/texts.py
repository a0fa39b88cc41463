"""The prose and the examples of the documentation, which are in files of this folder."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from listings.domain.errors import Code


class ErrorDoc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When an error code occurs, an example of its message, and what to do about it."""

    when: str
    example: str
    fix: str


class OperationTexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of one operation, and of the query parameters that mean something else in it."""

    summary: str
    description: str
    parameters: Mapping[str, str] = {}


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of the groups of operations, the operations, and the query parameters, each by name."""

    groups: Mapping[str, str]
    operations: Mapping[str, OperationTexts]
    parameters: Mapping[str, str]


class RequestExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An example of a request body. Without a value, it has every field."""

    summary: str
    value: dict[str, Any] | None = None


class Examples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Example bodies by schema name. A request schema has several, each with a name."""

    requests: Mapping[str, Mapping[str, RequestExample]]
    responses: Mapping[str, dict[str, Any]]


def _read(name: str) -> object:
    return _join_lines(tomllib.loads(files("listings.api.docs").joinpath(name).read_text("utf-8")))


def _join_lines(part: object) -> object:
    if isinstance(part, dict):
        return {name: _join_lines(inner) for name, inner in part.items()}
    return " ".join(str(part).split())


@cache
def read_examples() -> Examples:
    """Return the examples of bodies."""
    return msgspec.json.decode(files("listings.api.docs").joinpath("examples.json").read_bytes(), type=Examples)


@cache
def read_texts() -> Texts:
    """Return the texts that only the OpenAPI document needs."""
    return msgspec.convert(_read("operations.toml"), Texts)


ERROR_DOCS: Mapping[Code, ErrorDoc] = msgspec.convert(_read("errors.toml"), dict[Code, ErrorDoc])
"""Every error code of the API."""
