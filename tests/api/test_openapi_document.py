"""/openapi.json agrees with the tables that serve the requests, and with the responses of the service."""

import json
import re
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schemathesis.specs.openapi.definitions import OPENAPI_31

from listings.api import params
from listings.api.batch import MAX_OPERATIONS
from listings.api.codec import REVERTS_PATH
from listings.api.docs import document
from listings.api.docs.headers import COMMON_HEADERS
from listings.api.docs.schemas import build_schema
from listings.api.docs.texts import ERROR_DOCS, read_texts
from listings.api.images import IMAGES_PATH
from listings.api.routes import ROUTES
from listings.domain.errors import STATUS
from listings.domain.faults import FieldError
from listings.domain.fields import FIELDS, REQUIRED
from listings.domain.listing_json import OPTIONAL_LISTING_FIELDS, Record
from listings.domain.rules import Choice, Coordinate, Identifier, Images, Money, Text
from listings.service import ServiceInfo
from listings.service.history.change_waits import MAX_WAITS
from tests.api.described import DOCUMENT, SCHEMAS, build_validator, check_response, get_operation, resolve
from tests.api.fuzzing import fuzz
from tests.api.helpers import LISTINGS
from tests.conftest import Client
from tests.harness import Harness, RunningService
from tests.http.raw import Connection
from tests.pictures import photo

ENDPOINTS = [
    (path, method, endpoint)
    for path, methods in ROUTES.items()
    for method, endpoint in methods.items()
    if endpoint.operation is not None
]
NAMES = [f"{method} {path}" for path, method, _ in ENDPOINTS]
for_each_endpoint = pytest.mark.parametrize(("path", "method", "endpoint"), ENDPOINTS, ids=NAMES)


def get_parameters(path: str, method: str) -> dict[str, dict[str, Any]]:
    parameters = [*DOCUMENT["paths"][path].get("parameters", []), *get_operation(path, method)["parameters"]]
    return {resolve(one)["name"]: resolve(one) for one in parameters}


def test_the_document_is_valid_openapi() -> None:
    jsonschema_rs.validator_for(OPENAPI_31).validate(DOCUMENT)


def test_every_schema_is_valid() -> None:
    for schema in SCHEMAS.values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_every_reference_resolves_and_every_component_is_used() -> None:
    used = {one["$ref"] for one in find_schemas(DOCUMENT) if "$ref" in one and resolve(one)}
    defined = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "parameters", "headers", "responses")
        for name in DOCUMENT["components"][kind]
    }
    assert used == defined


@pytest.mark.decision("G40")
def test_the_document_has_exactly_the_documented_routes() -> None:
    described = [
        f"{method.upper()} {path}"
        for path, item in DOCUMENT["paths"].items()
        for method in item
        if method != "parameters"
    ]
    assert described == NAMES
    assert all(path.startswith("/api/v1/") for path in DOCUMENT["paths"])


@for_each_endpoint
def test_an_operation_has_the_security_and_parameters_of_its_endpoint(path: str, method: str, endpoint: Any) -> None:
    operation = get_operation(path, method)
    assert operation["security"] == [{"ApiKey": []}, {"Bearer": []}]
    assert endpoint.needs_key
    assert ("requestBody" in operation) is (endpoint.takes_body or endpoint.takes_upload)
    found = get_parameters(path, method)
    assert ("id" in found) is ("{id}" in path)
    assert {name for name, one in found.items() if one["in"] == "query"} == set(endpoint.operation.parameters) - set(
        endpoint.operation.undescribed
    )
    assert all(operation[key] for key in ("summary", "description", "tags", "responses"))


@for_each_endpoint
def test_an_operation_has_every_error_code_with_its_status(path: str, method: str, endpoint: Any) -> None:
    operation = get_operation(path, method)
    responses = {int(status): resolve(one) for status, one in operation["responses"].items()}
    codes = operation["x-error-codes"]
    assert codes == document.list_error_codes(endpoint)
    assert {status for status in responses if status >= 400} == {STATUS[code] for code in codes}
    examples = [responses[STATUS[code]]["content"]["application/json"]["examples"] for code in codes]
    assert all(code in found for code, found in zip(codes, examples, strict=True))
    assert all(set(COMMON_HEADERS) <= set(response["headers"]) for response in responses.values())


def test_every_error_code_is_used_and_documented() -> None:
    used = {code for _, _, endpoint in ENDPOINTS for code in document.list_error_codes(endpoint)}
    assert used | {"path_not_found", "method_not_allowed", "dependency_failed"} == set(ERROR_DOCS)


def test_the_id_has_its_bounds() -> None:
    assert get_parameters(LISTINGS + "/{id}", "GET")["id"]["schema"] | {"format": ""} == {
        "type": "integer",
        "format": "",
        "minimum": 1,
        "maximum": 2**53 - 1,
    }


@pytest.mark.parametrize("name", params.LIST_PARAMETERS)
def test_a_parameter_of_a_list_has_the_schema_of_its_rule(name: str) -> None:
    described = get_parameters(LISTINGS, "GET")[name]
    assert described["schema"] == build_schema(params.LIST_PARAMETERS[name])
    if "example" in described:
        build_validator(described["schema"]).validate(described["example"])


def allows_null(schema: dict[str, Any]) -> bool:
    return {"type": "null"} in schema.get("anyOf", ()) or "null" in schema.get("type", ())


def has_the_bounds(schema: dict[str, Any], rule: Any) -> bool:
    match rule:
        case Text(max_length=longest) | Identifier(max_length=longest):
            return bool(schema["maxLength"] == longest)
        case Choice(allowed=allowed):
            return bool(resolve(schema.get("anyOf", [schema])[0])["enum"] == list(allowed))
        case Money(max_cents=most):
            return bool((schema["minimum"], schema["maximum"] * 100, schema["format"]) == (0, most, "double"))
        case Coordinate(minimum=least, maximum=most):
            return bool((schema["minimum"], schema["maximum"], schema["format"]) == (least, most, "double"))
        case Images(max_items=most, max_length=longest):
            return bool((schema["maxItems"], resolve(schema["items"])["maxLength"]) == (most, longest))
    return "boolean" in schema["type"]


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_has_the_bounds_of_its_rule(name: str) -> None:
    field = FIELDS[name]
    new, change = (SCHEMAS[shape]["properties"][name] for shape in ("ListingCreate", "ListingUpdate"))
    assert has_the_bounds(new, field.rule)
    assert has_the_bounds(change, field.rule)
    assert allows_null(new) is (name not in REQUIRED)
    assert allows_null(change) is field.clearable


def test_the_record_has_the_fields_of_a_response() -> None:
    assert tuple(SCHEMAS["Listing"]["properties"]) == Record.__struct_fields__
    assert SCHEMAS["Listing"]["required"] == list(Record.__struct_fields__[:14])
    assert SCHEMAS["ListingCreate"]["required"] == list(REQUIRED)


@pytest.mark.parametrize("price", [0, 0.07, 1.15, 9.95, 19.99, 0.1 + 0.2, 999_999_999.99])
def test_prices_in_whole_cents_are_valid(price: float) -> None:
    for shape in ("ListingCreate", "ListingUpdate", "Listing"):
        build_validator(SCHEMAS[shape]["properties"]["price"]).validate(price)


def find_schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every object inside a part of the document, and the part."""
    if isinstance(part, dict):
        yield part
        for inner in part.values():
            yield from find_schemas(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from find_schemas(inner)


@pytest.mark.decision("G40")
def test_no_schema_has_a_default() -> None:
    assert not [one for one in find_schemas(SCHEMAS) if "default" in one]
    assert SCHEMAS["ListingCreate"]["properties"]["type"]["description"].endswith('Default: `"product"`.')


def test_every_decimal_is_a_double() -> None:
    numbers = [one for one in find_schemas(DOCUMENT) if "number" in one.get("type", ())]
    assert len(numbers) >= 11
    assert {one.get("format") for one in numbers} == {"double"}


def test_every_constant_and_every_alternative_is_typed() -> None:
    assert all("type" in one for one in find_schemas(DOCUMENT["components"]) if "const" in one)
    assert [name for name, schema in SCHEMAS.items() if "oneOf" in schema] == ["BatchOperation"]
    assert all("$ref" in one for one in SCHEMAS["BatchOperation"]["oneOf"])
    mapping = SCHEMAS["BatchOperation"]["discriminator"]["mapping"]
    assert {resolve({"$ref": one})["properties"]["op"]["const"]: one for one in mapping.values()} == mapping


def find_response_schemas(part: Any, found: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Collect every schema that a part of the document contains or refers to."""
    for schema in find_schemas(part):
        if id(schema) not in found:
            found[id(schema)] = schema
            if "$ref" in schema:
                find_response_schemas(resolve(schema), found)
    return found


CLOSED_IN_RESPONSES = ("ListingType", "PriceType", "ErrorCode")


def test_no_client_rejects_a_later_wider_value_of_a_response() -> None:
    responses = [get_operation(path, method)["responses"] for path, method, _ in ENDPOINTS]
    schemas = [one["schema"] for one in find_response_schemas(responses, {}).values() if "schema" in one]
    found = list(find_response_schemas(schemas, {}).values())
    assert SCHEMAS["ChangeActor"] in found
    bounds = {"pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"}
    assert [one for one in found if isinstance(one.get("type"), str | list) and bounds & set(one)] == []
    assert [one for one in found if "enum" in one] == [
        one for one in found if one in map(SCHEMAS.get, CLOSED_IN_RESPONSES)
    ]


def test_every_integer_is_one_that_javascript_preserves() -> None:
    bounds = [one[name] for one in find_schemas(DOCUMENT) for name in ("minimum", "maximum") if name in one]
    assert bounds
    assert all(abs(bound) < 2**53 for bound in bounds if isinstance(bound, int | float))


def test_every_header_has_a_valid_example() -> None:
    for name, header in DOCUMENT["components"]["headers"].items():
        assert build_validator(header["schema"]).is_valid(header["example"]), name


def test_the_operator_names_the_url_and_the_contact() -> None:
    assert DOCUMENT["servers"][0]["url"] == "/"
    assert "contact" not in DOCUMENT["info"]
    assert "externalDocs" not in DOCUMENT
    contacts = {"help@market.example": "email", "https://market.example/help": "url", "https://a.example/@shop": "url"}
    for contact, field in contacts.items():
        named = document.build_document(ROUTES, ServiceInfo("https://market.example", contact))
        assert named["info"]["contact"] == {field: contact}
        assert named["servers"][0]["url"] == "https://market.example"
        assert named["externalDocs"]["url"] == "https://market.example/docs"


def is_accepted(rule: Any, value: object) -> bool:
    try:
        rule(value)
    except FieldError:
        return False
    return True


PIECES = st.sampled_from(
    [*"aZ09:/?#@.\\ \0\t\n-+", "http:", "https://", "HTTP://", "ftp:", "//", "é", "\x85", "\u3000", "\ufeff", "\x9f"]
)
ADDRESSES = st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=12)


@given(ADDRESSES)
def test_the_pattern_of_an_image_accepts_what_its_rule_accepts(address: str) -> None:
    rule = FIELDS["images"].rule
    assert build_validator(build_schema(rule)).is_valid([address]) or not is_accepted(rule, [address])


@given(st.lists(PIECES, max_size=5).map("".join) | st.text(max_size=5))
@pytest.mark.parametrize("name", ["title", "category", "external_id"])
def test_the_pattern_of_a_string_accepts_what_its_rule_accepts(name: str, text: str) -> None:
    rule = FIELDS[name].rule
    assert build_validator(build_schema(rule)).is_valid(text) or not is_accepted(rule, text)


def test_patterns_reject_what_is_wrong_in_ascii() -> None:
    title, external_id, images = (
        build_validator(build_schema(FIELDS[name].rule)) for name in ("title", "external_id", "images")
    )
    characters = [chr(number) for number in range(128)]
    assert [one for one in characters if title.is_valid(one) == (one.isspace() or one == "\0")] == []
    assert [one for one in characters if external_id.is_valid(one) != one.isprintable()] == []
    assert not any(images.is_valid([url]) for url in ("a b", "a\n", "a\\b", "ftp://a", "http:///a", "https://me@a", ""))


def test_patterns_use_what_all_dialects_share() -> None:
    patterns = [one["pattern"] for one in find_schemas(DOCUMENT) if isinstance(one.get("pattern"), str)]
    assert len(patterns) > 20
    assert not [one for one in patterns if re.search(r"\\[upPxX](?!(?:0|1|2|7)[0-9a-f])|\(\?[^:]|[^\x00-\x7f]", one)]


TIMES = st.datetimes().map(str) | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}Z?)?\Z")
DAYS = st.builds("{:04}-{:02}-{:02}".format, st.integers(0, 2500), st.integers(0, 13), st.integers(0, 32))


@given(TIMES | DAYS | st.sampled_from(["2000-02-29", "1900-02-29", "2024-02-29", "2023-02-29", "0000-01-01"]))
def test_the_pattern_of_a_time_accepts_the_same_as_its_rule(text: str) -> None:
    assert build_validator(build_schema(params.parse_timestamp)).is_valid(text) is is_accepted(
        params.parse_timestamp, text
    )


@pytest.mark.parametrize("shape", ["Listing", "ListingCreate", "ListingUpdate"])
def test_the_examples_of_fields_are_valid(shape: str) -> None:
    for field in SCHEMAS[shape]["properties"].values():
        build_validator(field).validate(field["examples"][0])


def build_examples() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Generate a request for each example of a body and of a parameter of each operation."""
    for path, method, _ in ENDPOINTS:
        kinds = get_operation(path, method).get("requestBody", {}).get("content", {})
        content = kinds.get("application/json", {})
        if "image/jpeg" in kinds:
            yield path, method, "picture", {"content": photo()}
            continue
        bodies = {name: {"json": example["value"]} for name, example in content.get("examples", {}).items()}
        for name, sent in (bodies or {"bare": {}}).items():
            yield path, method, name, sent
        first = next(iter(bodies.values()), {})
        for name, parameter in get_parameters(path, method).items():
            example = parameter.get("example")
            if parameter["in"] == "header":
                yield path, method, name, first | {"headers": {name: example}}
            elif parameter["in"] == "query" and example is not None:
                value = (
                    example
                    if isinstance(example, str)
                    else ",".join(map(str, example))
                    if isinstance(example, list)
                    else example
                )
                text = str(value).lower() if isinstance(value, bool) else str(value)
                yield path, method, name, first | {"params": {name: text}}


EXAMPLES = list(build_examples())


def use_existing_ids(http: httpx2.Client, alice: Client, body: dict[str, Any]) -> dict[str, Any]:
    key = {"X-API-Key": alice.person.key}
    (created,) = http.get("/api/v1/changes", headers=key).json()["change_sets"]
    if "change" in body:
        return {"json": body | {"change": created["id"]}}
    if "key" in body:
        return {"json": body | {"key": created["actor"]["id"], "since": created["time"], "until": created["time"]}}
    if "revert" in body:
        first = http.post("/api/v1/changes/revert", json={"change": created["id"]}, headers=key).json()
        return {"json": {"revert": first["id"]}}
    if "group" in body:
        path = f"{LISTINGS}/{created['changes'][0]['id']}"
        http.patch(path, json={"price": 7}, headers=key | {"X-Change-Group": body["group"]})
    return {}


@pytest.mark.parametrize(
    ("path", "method", "name", "sent"), EXAMPLES, ids=[f"{method} {path} {name}" for path, method, name, _ in EXAMPLES]
)
def test_an_example_gets_a_response_as_described(
    http: httpx2.Client, alice: Client, path: str, method: str, name: str, sent: dict[str, Any]
) -> None:
    listing_id = alice.create()
    sent = sent | use_existing_ids(http, alice, sent.get("json", {}))
    key = {"X-API-Key": alice.person.key}
    if path.startswith(REVERTS_PATH):
        listing_id = http.post("/api/v1/changes/revert", json={"change": 1}, headers=key).json()["id"]
    resource = str(listing_id)
    if path.startswith(f"{IMAGES_PATH}/"):
        url = http.post(IMAGES_PATH, content=photo(), headers=key).json()["url"]
        resource = url.rpartition("/")[2].removesuffix(".jpg")
    operation = get_operation(path, method)
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "json" in sent:
        build_validator(body["schema"]).validate(sent["json"])
    headers = key | sent.get("headers", {})
    response = http.request(method, path.replace("{id}", resource), **sent | {"headers": headers})
    assert response.status_code < 400, f"{name}: {response.text}"
    described = check_response(operation, response)
    content = described.get("content", {}).get("application/json", {})
    if "example" in content:
        build_validator(content["schema"]).validate(content["example"])
        assert set(content["example"]) == set(response.json()) - set(OPTIONAL_LISTING_FIELDS)


def test_errors_equal_their_examples(harness: Harness) -> None:
    cast = harness.cast()
    listing = harness.fetch("POST", LISTINGS, key=cast.alice.key, json={"title": "a", "content": "b"})
    path = listing.headers["location"]
    replies = {
        "api_key_required": harness.fetch("GET", path),
        "invalid_api_key": harness.fetch("GET", path, key="wrong"),
        "plan_expired": harness.fetch("GET", path, key=cast.charlie.key),
        "not_owner": harness.fetch("GET", path, key=cast.bob.key),
        "listing_not_found": harness.fetch("GET", f"{LISTINGS}/1", key=cast.alice.key),
        "path_not_found": harness.fetch("GET", "/api"),
        "method_not_allowed": harness.fetch("POST", "/healthz"),
        "invalid_request": harness.fetch("POST", LISTINGS, key=cast.alice.key, json={}),
        "malformed_json": harness.fetch("POST", LISTINGS, key=cast.alice.key),
        "precondition_failed": harness.fetch("DELETE", path, key=cast.alice.key, headers={"If-Match": '"v9.0"'}),
        "unsupported_encoding": harness.fetch(
            "PATCH", path, key=cast.alice.key, body=b"{}", headers={"Content-Encoding": "gzip"}
        ),
        "body_too_large": harness.fetch("PATCH", path, key=cast.alice.key, body=b" " * 2_097_153),
    }
    for code, reply in replies.items():
        example = ERROR_DOCS[code].example  # type: ignore[index]  # the keys are codes
        assert (reply.headers["x-error-code"], reply.json()) == (code, {"error": example})


@pytest.mark.decision("G40")
def test_only_a_create_that_stores_is_described(alice: Client) -> None:
    operation = get_operation(LISTINGS, "POST")
    assert [status for status in operation["responses"] if status < "400"] == ["201"]
    body = {"title": "a", "content": "b"}
    check_response(operation, alice.post(json=body))
    rehearsed = alice.post("?dry_run=true", json=body)
    assert (rehearsed.status_code, rehearsed.json()) == (200, {"message": "listing would be created"})
    build_validator(SCHEMAS["Confirmation"]).validate(rehearsed.json())
    assert f"200 instead of 201, with `{json.dumps(rehearsed.json())}`" in operation["description"]


def test_pages_replays_and_ignored_fields_are_as_described(alice: Client) -> None:
    for _ in range(2):
        alice.create()
    listed, created = get_operation(LISTINGS, "GET"), get_operation(LISTINGS, "POST")
    page = alice.get("?limit=1&include=all")
    assert "link" in page.headers
    check_response(listed, page)
    check_response(listed, alice.get(headers={"If-None-Match": alice.get().headers["etag"]}))
    for replayed in (False, True):
        response = alice.post(
            json={"title": "a", "content": "b", "id": 1}, headers={"Idempotency-Key": "once", "X-Request-Id": "mine"}
        )
        assert ("idempotent-replayed" in response.headers) is replayed
        check_response(created, response)


def test_a_failed_atomic_batch_is_as_described(alice: Client) -> None:
    steps = [{"op": "create", "listing": {"title": "a", "content": "b"}}, {"op": "delete", "id": 1}]
    response = alice.post("/batch", json={"operations": steps, "atomic": True})
    assert [one["status"] for one in response.json()["results"]] == [424, 404]
    check_response(get_operation(f"{LISTINGS}/batch", "POST"), response)


@pytest.mark.parametrize("key", ['"', '""', '"open', "x" * 256, "\u00e9"])
def test_an_invalid_idempotency_key_does_not_match_its_pattern(alice: Client, key: str) -> None:
    response = alice.post(json={"title": "a", "content": "b"}, headers={"Idempotency-Key": key.encode("latin-1")})
    assert response.status_code == 400
    pattern = DOCUMENT["components"]["parameters"]["Idempotency-Key"]["schema"]["pattern"]
    assert re.search(pattern, key) is None


def test_the_document_needs_no_key_and_may_be_cached(http: httpx2.Client) -> None:
    response = http.get("/openapi.json")
    assert response.json() == DOCUMENT
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["cache-control"] == "private, no-cache"
    again = http.get("/openapi.json", headers={"If-None-Match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_an_allowed_origin_may_use_every_described_header(tmp_path: Path) -> None:
    with Harness(tmp_path, cors_origins="https://shop.example") as shop:
        origin = {"Origin": "https://shop.example"}
        preflight = shop.fetch("OPTIONS", LISTINGS, headers=origin | {"Access-Control-Request-Method": "POST"})
        reply = shop.fetch("GET", f"{LISTINGS}/1", headers=origin)
    components = DOCUMENT["components"]
    allowed = set(preflight.headers["access-control-allow-headers"].split(", "))
    assert {name.lower() for name in components["parameters"]} | {"x-api-key", "authorization"} <= allowed
    exposed = set(reply.headers["access-control-expose-headers"].split(", "))
    unneeded = {*map(str.lower, COMMON_HEADERS), "content-encoding", "www-authenticate"}
    assert {name.lower() for name in components["headers"]} - unneeded <= exposed
    check_response(
        get_operation(LISTINGS + "/{id}", "GET"),
        httpx2.Response(401, headers=reply.headers | {"Date": "of the server"}, content=reply.body),
    )


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /healthz?" + b"x" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 17_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.2\r\nHost: a\r\n\r\n",
    ],
)
def test_a_rejection_below_http_is_as_described(running: RunningService, sent: bytes) -> None:
    with Connection(running) as connection:
        raw = connection.send(sent).read_response()
    response = httpx2.Response(raw.status, headers=raw.headers, content=raw.body)
    assert abs(time.time() - parsedate_to_datetime(response.headers["date"]).timestamp()) < 60
    check_response(get_operation(LISTINGS, "GET"), response)


@pytest.mark.slow
@pytest.mark.uncovered
def test_schemathesis_finds_nothing_in_500_cases(tmp_path: Path) -> None:
    report = fuzz(tmp_path, examples=15)
    assert report.code == 0, report.text
    assert report.cases >= 500


def test_texts_state_the_limits_of_the_code() -> None:
    texts = read_texts()
    assert f"at most {params.MAX_IDS}," in texts.parameters["ids"]
    assert f"up to {MAX_OPERATIONS} operations" in texts.operations["runBatch"].description
    assert f"may have {MAX_WAITS} that wait" in ERROR_DOCS["too_many_waits"].fix
