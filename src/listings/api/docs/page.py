"""The description as a page for people: readable without a script, with a form to try each operation with one."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from listings.api.docs.headers import OF_EVERY_ANSWER, OF_THE_LIMIT
from listings.api.docs.html import Html, joined, tag, words
from listings.api.docs.operations import ERROR_DOCS
from listings.api.docs.samples import BASE_URL, Call, samples_of
from listings.api.docs.schema_text import rows_of, shape_of
from listings.api.docs.schemas import Schema

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_ELSEWHERE = "http://localhost:8000"
_EVERYWHERE = {*OF_EVERY_ANSWER, *OF_THE_LIMIT, "X-Error-Code", "WWW-Authenticate", "Retry-After", "Allow"}
_METHODS = ("get", "post", "put", "patch", "delete")


def page(document: Schema) -> bytes:
    """The whole page, with a mark in place of the service's address."""
    reader = _Reader(document)
    content = joined([_head(document), tag("body", _skip(), _top(document), reader.layout())])
    return f"<!doctype html>\n{tag('html', content, lang='en', data_base=BASE_URL)}\n".encode()


def at(page: bytes, host: str) -> bytes:
    """The page for whom the service is at this host, which is what the Host header says."""
    address = f"http://{host}" if _HOST.fullmatch(host) else _ELSEWHERE
    return page.replace(BASE_URL.encode(), address.encode())


def _head(document: Schema) -> Html:
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


def _skip() -> Html:
    return tag("a", "Skip to the operations", class_="skip", href="#content")


def _top(document: Schema) -> Html:
    info = document["info"]
    title = tag("h1", info["title"], " API ", tag("small", info["version"]))
    field = tag(
        "input", id="key", type="password", autocomplete="off", spellcheck="false", placeholder="to try operations here"
    )
    key = tag("form", tag("label", "Your key", for_="key"), field, class_="key", hidden=True)
    return tag("header", tag("div", title, tag("p", info["summary"])), key, class_="top")


class _Reader:
    """Reads one document."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._schemas: Mapping[str, Schema] = document["components"]["schemas"]

    def layout(self) -> Html:
        """The table of contents and all it leads to."""
        shapes = joined([self._shape(name, schema) for name, schema in self._schemas.items() if "properties" in schema])
        content = tag(
            "main",
            self._overview(),
            joined([self._group(group) for group in self._document["tags"]]),
            tag("section", tag("h2", "Shapes"), shapes, id="shapes"),
            tag("section", tag("h2", "Headers of answers"), self._headers(), id="headers"),
            id="content",
        )
        return tag("div", self._contents(), content, class_="layout")

    def _operations(self) -> Iterator[tuple[str, str, Schema, list[Schema]]]:
        for path, item in self._document["paths"].items():
            for method in _METHODS:
                if method in item:
                    operation = item[method]
                    parameters = [*item.get("parameters", []), *operation["parameters"]]
                    yield method.upper(), path, operation, [self._resolved(parameter) for parameter in parameters]

    def _resolved(self, part: Schema) -> Schema:
        while "$ref" in part:
            found: Schema = self._document
            for step in part["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            part = found
        return part

    def _contents(self) -> Html:
        groups = []
        for group in self._document["tags"]:
            links = [
                tag(
                    "li",
                    tag("a", _badge(method), tag("span", operation["summary"]), href=f"#{operation['operationId']}"),
                )
                for method, _, operation, _ in self._operations()
                if group["name"] in operation["tags"]
            ]
            groups.append(tag("div", tag("h2", group["name"]), tag("ul", joined(links))))
        more = [tag("li", tag("a", tag("span", name), href=f"#{place}")) for name, place in _MORE.items()]
        groups.append(tag("div", tag("h2", "More"), tag("ul", joined(more))))
        inner = tag("details", tag("summary", "Contents"), joined(groups), open=True)
        return tag("nav", inner, aria_label="Contents")

    def _overview(self) -> Html:
        paragraphs = self._document["info"]["description"].strip().split("\n\n")
        schemes = self._document["components"]["securitySchemes"]
        keys = (
            f"Send your key with every request, as the header `{schemes['ApiKey']['name']}` or as a bearer token in "
            "`Authorization`. You get it from the operator; it needs a current Business plan."
        )
        return tag(
            "section",
            tag(
                "dl",
                tag("dt", "Base address"),
                tag("dd", tag("code", BASE_URL)),
                tag("dt", "As a file"),
                tag("dd", tag("a", "openapi.json", href="/openapi.json"), f" (OpenAPI {self._document['openapi']})"),
            ),
            joined([tag("p", words(paragraph)) for paragraph in [*paragraphs, keys]]),
            id="overview",
            class_="overview",
        )

    def _group(self, group: Schema) -> Html:
        found = [one for one in self._operations() if group["name"] in one[2]["tags"]]
        parts = joined([self._operation(*one) for one in found])
        return tag("section", tag("h2", group["name"]), tag("p", words(group["description"])), parts)

    def _operation(self, method: str, path: str, operation: Schema, parameters: list[Schema]) -> Html:
        name = operation["operationId"]
        address = tag("p", _badge(method), " ", tag("code", path), class_="address")
        told = tag(
            "div",
            tag("p", words(operation["description"])),
            self._parameters(parameters),
            self._body(operation),
            self._answers(operation),
        )
        tried = tag(
            "div", _samples(name, self._call(method, path, operation)), self._form(method, path, operation, parameters)
        )
        heading = tag("h3", tag("a", operation["summary"], href=f"#{name}"))
        return tag("article", heading, address, tag("div", told, tried, class_="sides"), id=name)

    def _parameters(self, parameters: list[Schema]) -> Html | None:
        kinds = {"path": "in the path", "query": "in the query", "header": "header"}
        rows = [
            _row(
                one["name"],
                f"{kinds[one['in']]}{', required' if one.get('required') else ''}",
                shape_of(one["schema"]),
                one["description"],
            )
            for one in parameters
        ]
        return tag("div", tag("h4", "Parameters"), tag("dl", joined(rows), class_="fields"))

    def _body(self, operation: Schema) -> Html | None:
        if "requestBody" not in operation:
            return None
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        note = tag("p", words(self._schemas[name]["description"]))
        return tag("div", tag("h4", "Body"), note, self._fields(self._schemas[name]))

    def _fields(self, schema: Schema) -> Html:
        return tag("dl", joined([_row(*row) for row in rows_of(schema)]), class_="fields")

    def _answers(self, operation: Schema) -> Html:
        answers = {status: self._resolved(answer) for status, answer in operation["responses"].items()}
        good = [self._good(status, answer) for status, answer in answers.items() if status < "400"]
        bad = [_bad(status, answer) for status, answer in answers.items() if status >= "400"]
        table = tag("div", tag("table", tag("thead", _ROW_OF_HEADINGS), tag("tbody", joined(bad))), class_="wide")
        refusals = tag("details", tag("summary", "Refusals"), table)
        return tag("div", tag("h4", "Answers"), joined(good), refusals)

    def _good(self, status: str, answer: Schema) -> Html:
        more = [name for name in answer["headers"] if name not in _EVERYWHERE]
        heading = tag("p", tag("strong", status), " ", words(answer["description"]))
        named = (
            tag("p", "Headers: ", joined([tag("code", name) for name in more], ", "), class_="note") if more else None
        )
        content: Schema = next(iter(answer.get("content", {}).values()), {})
        example = None
        if "example" in content:
            name = content["schema"]["$ref"].rpartition("/")[2]
            link = tag("p", "Shape: ", tag("a", name, href=f"#shape-{name}"), class_="note")
            example = tag("details", tag("summary", "Example"), link, _json(content["example"]))
        return tag("div", heading, named, example, class_="answer")

    def _shape(self, name: str, schema: Schema) -> Html:
        note = tag("p", words(schema["description"])) if "description" in schema else None
        return tag("article", tag("h3", name), note, self._fields(schema), id=f"shape-{name}")

    def _headers(self) -> Html:
        told = self._document["components"]["headers"]
        rows = [_row(name, "", shape_of(one["schema"]), one["description"]) for name, one in told.items()]
        return tag("dl", joined(rows), class_="fields")

    def _call(self, method: str, path: str, operation: Schema) -> Call:
        examples = _examples(operation)
        body = next(iter(examples.values()))["value"] if examples else None
        return Call(method, path.replace("{id}", "1025"), needs_key=bool(operation["security"]), body=body)

    def _form(self, method: str, path: str, operation: Schema, parameters: list[Schema]) -> Html:
        name = operation["operationId"]
        fields = [_field(name, parameter) for parameter in parameters]
        examples = _examples(operation)
        if examples:
            text = json.dumps(next(iter(examples.values()))["value"], indent=2, ensure_ascii=False)
            label = tag("label", "Body", for_=f"{name}-body")
            area = tag("textarea", text, id=f"{name}-body", name="body", rows="8", spellcheck="false")
            fields.append(tag("div", label, area, class_="field"))
        send = tag("button", "Send", type="submit")
        output = tag("output", aria_live="polite")
        form = tag("form", joined(fields), send, output, data_method=method, data_path=path)
        return tag("details", tag("summary", "Try it"), form, class_="try", hidden=True)


_MORE = {"Shapes": "shapes", "Headers of answers": "headers"}
_ROW_OF_HEADINGS = tag("tr", tag("th", "Status"), tag("th", "X-Error-Code"), tag("th", "When"))


def _examples(operation: Schema) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples: dict[str, Any] = content.get("examples", {})
    return examples


def _badge(method: str) -> Html:
    return tag("span", method, class_=f"method {method.lower()}")


def _row(name: str, place: str, shape: str, told: str) -> Html:
    facts = ", ".join(fact for fact in (place, shape) if fact)
    return tag("div", tag("dt", tag("code", name), " ", tag("span", facts)), tag("dd", words(told)))


def _bad(status: str, answer: Schema) -> Html:
    rows = [
        tag("tr", tag("td", status), tag("td", tag("code", code)), tag("td", words(ERROR_DOCS[code].when)))
        for code in answer["headers"]["X-Error-Code"]["schema"]["enum"]
    ]
    return joined(rows)


def _json(value: object) -> Html:
    return _code(json.dumps(value, indent=2, ensure_ascii=False))


def _code(text: str) -> Html:
    return tag("pre", tag("code", text), tabindex="0")


def _samples(name: str, call: Call) -> Html:
    """One of them is seen at a time, chosen by radio buttons, so that no script is needed."""
    samples = samples_of(call)
    choices = [
        joined(
            [
                tag(
                    "input",
                    type="radio",
                    name=f"{name}-language",
                    id=f"{name}-{sample.language}",
                    value=sample.language,
                    checked=place == 0,
                ),
                tag("label", sample.language, for_=f"{name}-{sample.language}"),
            ]
        )
        for place, sample in enumerate(samples)
    ]
    legend = tag("legend", "Sample in", class_="unseen")
    texts = [tag("div", _code(sample.text), class_="sample") for sample in samples]
    return tag("fieldset", legend, joined(choices), joined(texts), class_="samples")


def _field(operation: str, parameter: Schema) -> Html:
    name, schema = parameter["name"], parameter["schema"]
    place = f"{operation}-{name}"
    known: dict[str, Any] = {"id": place, "name": name, "data_in": parameter["in"]}
    if schema["type"] == "boolean" or "enum" in schema:
        values = schema.get("enum", [True, False])
        options = [tag("option", "", value="")] + [tag("option", _text(value), value=_text(value)) for value in values]
        entry = tag("select", joined(options), **known)
    else:
        required = parameter.get("required", False)
        example = _text(parameter.get("example", ""))
        entry = tag(
            "input",
            type="text",
            spellcheck="false",
            value=example if required else None,
            placeholder=None if required else example or None,
            required=required,
            **known,
        )
    return tag("div", tag("label", name, for_=place), entry, class_="field")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
