"""Render the OpenAPI document as a reference page. Only the forms that send requests need JavaScript."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from listings.api.docs.headers import COMMON_HEADERS, RATE_LIMIT_HEADERS
from listings.api.docs.html import Html, format_text, join_html, tag
from listings.api.docs.operations import ERROR_DOCS
from listings.api.docs.samples import BASE_URL, Call, build_samples
from listings.api.docs.schema_text import describe_schema, list_properties
from listings.api.docs.schemas import Schema

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_DEFAULT_BASE_URL = "http://localhost:8000"  # if the Host header is invalid
_COMMON = {*COMMON_HEADERS, *RATE_LIMIT_HEADERS, "X-Error-Code", "WWW-Authenticate", "Retry-After", "Allow"}
_METHODS = ("get", "post", "put", "patch", "delete")


def render_page(document: Schema) -> bytes:
    """Return the page, with a placeholder for the base URL of the service."""
    renderer = _Renderer(document)
    content = join_html(
        [_render_head(document), tag("body", _render_skip_link(), _render_top(document), renderer.render())]
    )
    return f"<!doctype html>\n{tag('html', content, lang='en', data_base=BASE_URL)}\n".encode()


def set_base_url(page: bytes, host: str) -> bytes:
    """Replace the placeholder by the URL of this host, which comes from the Host header."""
    base_url = f"http://{host}" if _HOST.fullmatch(host) else _DEFAULT_BASE_URL
    return page.replace(BASE_URL.encode(), base_url.encode())


def _render_head(document: Schema) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{document['info']['title']} API {document['info']['version']}"),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href="/docs/reference.css"),
        tag("script", src="/docs/reference.js", defer=True),
    )


def _render_skip_link() -> Html:
    return tag("a", "Skip to the operations", class_="skip", href="#content")


def _render_top(document: Schema) -> Html:
    info = document["info"]
    title = tag("h1", info["title"], " API ", tag("small", info["version"]))
    field = tag(
        "input",
        id="key",
        type="password",
        autocomplete="off",
        spellcheck="false",
        placeholder="for the forms on this page",
    )
    key = tag("form", tag("label", "API key", for_="key"), field, class_="key", hidden=True)
    return tag("header", tag("div", title, tag("p", info["summary"])), key, class_="top")


class _Renderer:
    """Renders one document."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._schemas: Mapping[str, Schema] = document["components"]["schemas"]

    def render(self) -> Html:
        """Return the table of contents and all sections."""
        schemas = join_html(
            [self._render_schema(name, schema) for name, schema in self._schemas.items() if "properties" in schema]
        )
        content = tag(
            "main",
            self._render_overview(),
            join_html([self._render_group(group) for group in self._document["tags"]]),
            tag("section", tag("h2", "Schemas"), schemas, id="schemas"),
            tag("section", tag("h2", "Response headers"), self._render_headers(), id="headers"),
            id="content",
        )
        return tag("div", self._render_contents(), content, class_="layout")

    def _operations(self) -> Iterator[tuple[str, str, Schema, list[Schema]]]:
        for path, item in self._document["paths"].items():
            for method in _METHODS:
                if method in item:
                    operation = item[method]
                    parameters = [*item.get("parameters", []), *operation["parameters"]]
                    yield method.upper(), path, operation, [self._resolve(parameter) for parameter in parameters]

    def _resolve(self, part: Schema) -> Schema:
        while "$ref" in part:
            found: Schema = self._document
            for step in part["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            part = found
        return part

    def _render_contents(self) -> Html:
        groups = []
        for group in self._document["tags"]:
            links = [
                tag(
                    "li",
                    tag(
                        "a",
                        _render_badge(method),
                        tag("span", operation["summary"]),
                        href=f"#{operation['operationId']}",
                    ),
                )
                for method, _, operation, _ in self._operations()
                if group["name"] in operation["tags"]
            ]
            groups.append(tag("div", tag("h2", group["name"]), tag("ul", join_html(links))))
        more = [tag("li", tag("a", tag("span", name), href=f"#{anchor}")) for name, anchor in _SECTIONS.items()]
        groups.append(tag("div", tag("h2", "More"), tag("ul", join_html(more))))
        inner = tag("details", tag("summary", "Contents"), join_html(groups), open=True)
        return tag("nav", inner, aria_label="Contents")

    def _render_overview(self) -> Html:
        paragraphs = self._document["info"]["description"].strip().split("\n\n")
        schemes = self._document["components"]["securitySchemes"]
        keys = (
            f"Send your API key with every request, in the header `{schemes['ApiKey']['name']}` or as a bearer token "
            "in `Authorization`. Create a key in the seller console at `/console/keys`. If this service has no "
            "console, ask its operator for a key. You need an active Business plan."
        )
        return tag(
            "section",
            tag(
                "dl",
                tag("dt", "Base URL"),
                tag("dd", tag("code", BASE_URL)),
                tag("dt", "OpenAPI document"),
                tag("dd", tag("a", "openapi.json", href="/openapi.json"), f" (OpenAPI {self._document['openapi']})"),
            ),
            join_html([tag("p", format_text(paragraph)) for paragraph in [*paragraphs, keys]]),
            id="overview",
            class_="overview",
        )

    def _render_group(self, group: Schema) -> Html:
        operations = [entry for entry in self._operations() if group["name"] in entry[2]["tags"]]
        parts = join_html([self._render_operation(*entry) for entry in operations])
        return tag("section", tag("h2", group["name"]), tag("p", format_text(group["description"])), parts)

    def _render_operation(self, method: str, path: str, operation: Schema, parameters: list[Schema]) -> Html:
        name = operation["operationId"]
        endpoint = tag("p", _render_badge(method), " ", tag("code", path), class_="address")
        documentation = tag(
            "div",
            tag("p", format_text(operation["description"])),
            self._render_parameters(parameters),
            self._render_body(operation),
            self._render_responses(operation),
        )
        trial = tag(
            "div",
            _render_samples(name, self._build_call(method, path, operation)),
            self._render_form(method, path, operation, parameters),
        )
        heading = tag("h3", tag("a", operation["summary"], href=f"#{name}"))
        return tag("article", heading, endpoint, tag("div", documentation, trial, class_="sides"), id=name)

    def _render_parameters(self, parameters: list[Schema]) -> Html | None:
        places = {"path": "in the path", "query": "in the query", "header": "header"}
        rows = [
            _render_row(
                parameter["name"],
                f"{places[parameter['in']]}{', required' if parameter.get('required') else ''}",
                describe_schema(parameter["schema"]),
                parameter["description"],
            )
            for parameter in parameters
        ]
        return tag("div", tag("h4", "Parameters"), tag("dl", join_html(rows), class_="fields"))

    def _render_body(self, operation: Schema) -> Html | None:
        if "requestBody" not in operation:
            return None
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        note = tag("p", format_text(self._schemas[name]["description"]))
        return tag("div", tag("h4", "Body"), note, self._render_fields(self._schemas[name]))

    def _render_fields(self, schema: Schema) -> Html:
        return tag("dl", join_html([_render_row(*row) for row in list_properties(schema)]), class_="fields")

    def _render_responses(self, operation: Schema) -> Html:
        responses = {status: self._resolve(response) for status, response in operation["responses"].items()}
        successes = [self._render_success(*entry) for entry in responses.items() if entry[0] < "400"]
        errors = [_render_error(*entry) for entry in responses.items() if entry[0] >= "400"]
        table = tag("div", tag("table", tag("thead", _ERROR_HEADINGS), tag("tbody", join_html(errors))), class_="wide")
        details = tag("details", tag("summary", "Errors"), table)
        return tag("div", tag("h4", "Responses"), join_html(successes), details)

    def _render_success(self, status: str, response: Schema) -> Html:
        more = [name for name in response["headers"] if name not in _COMMON]
        heading = tag("p", tag("strong", status), " ", format_text(response["description"]))
        named = (
            tag("p", "Headers: ", join_html([tag("code", name) for name in more], ", "), class_="note")
            if more
            else None
        )
        content: Schema = next(iter(response.get("content", {}).values()), {})
        example = None
        if "example" in content:
            name = content["schema"]["$ref"].rpartition("/")[2]
            link = tag("p", "Schema: ", tag("a", name, href=f"#schema-{name}"), class_="note")
            example = tag("details", tag("summary", "Example"), link, _render_json(content["example"]))
        return tag("div", heading, named, example, class_="answer")

    def _render_schema(self, name: str, schema: Schema) -> Html:
        note = tag("p", format_text(schema["description"])) if "description" in schema else None
        return tag("article", tag("h3", name), note, self._render_fields(schema), id=f"schema-{name}")

    def _render_headers(self) -> Html:
        headers = self._document["components"]["headers"]
        rows = [
            _render_row(name, "", describe_schema(header["schema"]), header["description"])
            for name, header in headers.items()
        ]
        return tag("dl", join_html(rows), class_="fields")

    def _build_call(self, method: str, path: str, operation: Schema) -> Call:
        examples = _find_examples(operation)
        body = next(iter(examples.values()))["value"] if examples else None
        return Call(method, path.replace("{id}", "1025"), needs_key=bool(operation["security"]), body=body)

    def _render_form(self, method: str, path: str, operation: Schema, parameters: list[Schema]) -> Html:
        name = operation["operationId"]
        fields = [_render_field(name, parameter) for parameter in parameters]
        examples = _find_examples(operation)
        if examples:
            text = json.dumps(next(iter(examples.values()))["value"], indent=2, ensure_ascii=False)
            label = tag("label", "Body", for_=f"{name}-body")
            area = tag("textarea", text, id=f"{name}-body", name="body", rows="8", spellcheck="false")
            fields.append(tag("div", label, area, class_="field"))
        send = tag("button", "Send", type="submit")
        output = tag("output", aria_live="polite")
        form = tag("form", join_html(fields), send, output, data_method=method, data_path=path)
        return tag("details", tag("summary", "Try it"), form, class_="try", hidden=True)


_SECTIONS = {"Schemas": "schemas", "Response headers": "headers"}
_ERROR_HEADINGS = tag("tr", tag("th", "Status"), tag("th", "X-Error-Code"), tag("th", "When"))


def _find_examples(operation: Schema) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples: dict[str, Any] = content.get("examples", {})
    return examples


def _render_badge(method: str) -> Html:
    return tag("span", method, class_=f"method {method.lower()}")


def _render_row(name: str, place: str, kind: str, description: str) -> Html:
    facts = ", ".join(fact for fact in (place, kind) if fact)
    return tag("div", tag("dt", tag("code", name), " ", tag("span", facts)), tag("dd", format_text(description)))


def _render_error(status: str, response: Schema) -> Html:
    rows = [
        tag("tr", tag("td", status), tag("td", tag("code", code)), tag("td", format_text(ERROR_DOCS[code].when)))
        for code in response["headers"]["X-Error-Code"]["schema"]["enum"]
    ]
    return join_html(rows)


def _render_json(value: object) -> Html:
    return _render_code(json.dumps(value, indent=2, ensure_ascii=False))


def _render_code(text: str) -> Html:
    return tag("pre", tag("code", text), tabindex="0")


def _render_samples(name: str, call: Call) -> Html:
    """Render the samples with radio buttons that show one at a time, which needs no script."""
    samples = build_samples(call)
    choices = [
        join_html(
            [
                tag(
                    "input",
                    type="radio",
                    name=f"{name}-language",
                    id=f"{name}-{sample.language}",
                    value=sample.language,
                    checked=index == 0,
                ),
                tag("label", sample.language, for_=f"{name}-{sample.language}"),
            ]
        )
        for index, sample in enumerate(samples)
    ]
    legend = tag("legend", "Sample in", class_="unseen")
    texts = [tag("div", _render_code(sample.text), class_="sample") for sample in samples]
    return tag("fieldset", legend, join_html(choices), join_html(texts), class_="samples")


def _render_field(operation: str, parameter: Schema) -> Html:
    name, schema = parameter["name"], parameter["schema"]
    field_id = f"{operation}-{name}"
    attributes: dict[str, Any] = {"id": field_id, "name": name, "data_in": parameter["in"]}
    if schema["type"] == "boolean" or "enum" in schema:
        values = schema.get("enum", [True, False])
        options = [tag("option", "", value="")] + [
            tag("option", _format_value(value), value=_format_value(value)) for value in values
        ]
        control = tag("select", join_html(options), **attributes)
    else:
        required = parameter.get("required", False)
        example = _format_value(parameter.get("example", ""))
        control = tag(
            "input",
            type="text",
            spellcheck="false",
            value=example if required else None,
            placeholder=None if required else example or None,
            required=required,
            **attributes,
        )
    return tag("div", tag("label", name, for_=field_id), control, class_="field")


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
