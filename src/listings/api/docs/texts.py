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
    """The texts of one operation, its successful responses, and the query parameters that mean something else in it."""

    summary: str
    description: str
    responses: tuple[str, ...]
    parameters: Mapping[str, str] = {}


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of the groups of operations, the operations, the query parameters and the headers, each by name."""

    groups: Mapping[str, str]
    operations: Mapping[str, OperationTexts]
    parameters: Mapping[str, str]
    request_headers: Mapping[str, str]
    response_headers: Mapping[str, str]


class RequestExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An example of a request body. Without a value, it has every field."""

    summary: str
    value: dict[str, Any] | None = None


class Examples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Example bodies by schema name, of which a request schema has several, and values of query parameters by name."""

    requests: Mapping[str, Mapping[str, RequestExample]]
    responses: Mapping[str, dict[str, Any]]
    parameters: Mapping[str, Any]


def _read(name: str) -> object:
    return _join_lines(tomllib.loads(files("listings.api.docs").joinpath(name).read_text("utf-8")))


def _join_lines(part: object) -> object:
    if isinstance(part, dict):
        return {name: _join_lines(inner) for name, inner in part.items()}
    if isinstance(part, list):
        return [_join_lines(inner) for inner in part]
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
