"""How to send a request, in three languages."""

import json
import textwrap
from typing import NamedTuple

BASE_URL = "https://BASE-URL.invalid"
"""Stands for the reader's own address of the service, and is replaced by it."""

_KEY = "YOUR_API_KEY"


class Call(NamedTuple):
    """A request; the path has its query with it."""

    method: str
    path: str
    needs_key: bool
    body: object = None


class Sample(NamedTuple):
    """A request in one language."""

    language: str
    text: str


def samples_of(call: Call) -> list[Sample]:
    """The request as people would send it."""
    return [Sample("curl", _curl(call)), Sample("Python", _python(call)), Sample("JavaScript", _javascript(call))]


def _curl(call: Call) -> str:
    words = ["curl"] if call.method == "GET" else [f"curl -X {call.method}"]
    words.append(f'"{BASE_URL}{call.path}"')
    if call.needs_key:
        words.append(f'-H "X-API-Key: {_KEY}"')
    if call.body is not None:
        body = json.dumps(call.body, indent=2, ensure_ascii=False).replace("'", "'\\''")
        words += ['-H "Content-Type: application/json"', f"-d '{body}'"]
    return " \\\n  ".join([" ".join(words[:2]), *words[2:]])


def _python(call: Call) -> str:
    arguments = [f'"{BASE_URL}{call.path}"']
    if call.needs_key:
        arguments.append(f'headers={{"X-API-Key": "{_KEY}"}}')
    if call.body is not None:
        arguments.append(f"json={_literal(call.body)}")
    inner = textwrap.indent(",\n".join([*arguments, "timeout=30"]), "    ")
    request = f"response = requests.{call.method.lower()}(\n{inner},\n)"
    return f"import requests\n\n{request}\nprint(response.status_code, response.text)"


def _literal(value: object) -> str:
    """A JSON value as one writes it in Python."""
    if isinstance(value, dict):
        inner = ",\n".join(f"{json.dumps(key)}: {_literal(part)}" for key, part in value.items())
        return f"{{\n{textwrap.indent(inner, '    ')},\n}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _javascript(call: Call) -> str:
    options = [] if call.method == "GET" else [f'  method: "{call.method}",']
    if call.needs_key:
        content = ', "Content-Type": "application/json"' if call.body is not None else ""
        options.append(f'  headers: {{"X-API-Key": "{_KEY}"{content}}},')
    if call.body is not None:
        body = json.dumps(call.body, indent=2, ensure_ascii=False).replace("\n", "\n  ")
        options.append(f"  body: JSON.stringify({body}),")
    address = f'"{BASE_URL}{call.path}"'
    fetch = f"fetch({address}, {{\n" + "\n".join(options) + "\n})" if options else f"fetch({address})"
    return f"const response = await {fetch};\nconsole.log(response.status, await response.text());"
