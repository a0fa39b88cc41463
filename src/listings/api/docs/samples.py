"""Code samples that send a request, in three languages."""

import json
import textwrap
from typing import NamedTuple

BASE_URL = "https://BASE-URL.invalid"
"""Placeholder that is replaced by the base URL under which the reader opened the page."""

_KEY = "YOUR_API_KEY"


class Call(NamedTuple):
    """A request. The path includes the query."""

    method: str
    path: str
    needs_key: bool
    body: object = None


class Sample(NamedTuple):
    """A code sample in one language."""

    language: str
    text: str


def build_samples(call: Call) -> list[Sample]:
    """Return one sample per language."""
    formats = {"curl": _format_curl, "Python": _format_python, "JavaScript": _format_javascript}
    return [Sample(language, format_call(call)) for language, format_call in formats.items()]


def _format_curl(call: Call) -> str:
    arguments = ["curl"] if call.method == "GET" else [f"curl -X {call.method}"]
    arguments.append(f'"{BASE_URL}{call.path}"')
    if call.needs_key:
        arguments.append(f'-H "X-API-Key: {_KEY}"')
    if call.body is not None:
        body = json.dumps(call.body, indent=2, ensure_ascii=False).replace("'", "'\\''")
        arguments += ['-H "Content-Type: application/json"', f"-d '{body}'"]
    return " \\\n  ".join([" ".join(arguments[:2]), *arguments[2:]])


def _format_python(call: Call) -> str:
    arguments = [f'"{BASE_URL}{call.path}"']
    if call.needs_key:
        arguments.append(f'headers={{"X-API-Key": "{_KEY}"}}')
    if call.body is not None:
        arguments.append(f"json={_format_literal(call.body)}")
    inner = textwrap.indent(",\n".join([*arguments, "timeout=30"]), "    ")
    request = f"response = requests.{call.method.lower()}(\n{inner},\n)"
    return f"import requests\n\n{request}\nprint(response.status_code, response.text)"


def _format_literal(value: object) -> str:
    """Return a JSON value as a Python literal."""
    if isinstance(value, dict):
        inner = ",\n".join(f"{json.dumps(key)}: {_format_literal(part)}" for key, part in value.items())
        return f"{{\n{textwrap.indent(inner, '    ')},\n}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _format_javascript(call: Call) -> str:
    options = [] if call.method == "GET" else [f'  method: "{call.method}",']
    if call.needs_key:
        content = ', "Content-Type": "application/json"' if call.body is not None else ""
        options.append(f'  headers: {{"X-API-Key": "{_KEY}"{content}}},')
    if call.body is not None:
        body = json.dumps(call.body, indent=2, ensure_ascii=False).replace("\n", "\n  ")
        options.append(f"  body: JSON.stringify({body}),")
    url = f'"{BASE_URL}{call.path}"'
    fetch = f"fetch({url}, {{\n" + "\n".join(options) + "\n})" if options else f"fetch({url})"
    return f"const response = await {fetch};\nconsole.log(response.status, await response.text());"
