"""Run tests/specification against this service, and through a proxy that injects one fault at a time."""

import ast
import os
import re
import signal
import subprocess
import sys
import threading
from ast import unparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faulty_proxy import Answer, Fault, Forward, Request, run_faulty_proxy
from tests.harness import TIMEOUT, Cast, Person, RunningService
from tests.processes import run_program
from tests.specification.client import Account, Server

ROOT = Path(__file__).parent.parent
SUITE = ROOT / "tests/specification"
SPECIFICATION = (ROOT / "docs/specification.md").read_text("utf-8")
NOT_VISIBLE = {"Generating a key requires the Business plan."}  # from outside


def build_environment(base_url: str, cast: Cast, **more: str) -> dict[str, str]:
    keys = {"API_KEY": cast.alice.key, "OTHER_API_KEY": cast.bob.key, "EXPIRED_API_KEY": cast.charlie.key}
    return os.environ | keys | {"BASE_URL": base_url, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | more


def run_suite(environment: dict[str, str], *arguments: str) -> tuple[str, Counter[str]]:
    """Return the output and, from its last line, the numbers of cases that passed, failed and were skipped."""
    command = [sys.executable, "-m", "pytest", "-q", str(SUITE), *arguments]
    ended = run_program(command, env=environment)
    output = ended.stdout + ended.stderr
    counts = re.findall(r"(\d+) (passed|failed|error|skipped)", output.rstrip().rpartition("\n")[2])
    return output, Counter({outcome: int(number) for number, outcome in counts})


def read_list(base_url: str, person: Person) -> dict[str, Any]:
    return Account(Server(base_url), "the test", {"X-API-Key": person.key}).read_list()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_this_service_meets_the_specification(
    running: RunningService, cast: Cast, create_once: Callable[[str], Person]
) -> None:
    environment = build_environment(running.base_url, cast, LIMITED_API_KEY=create_once("dora").key)
    output, counts = run_suite(environment)
    assert counts.keys() == {"passed"}, output
    assert read_list(running.base_url, cast.alice) == {}


def test_cases_without_their_key_are_skipped(running: RunningService, cast: Cast) -> None:
    missing = dict.fromkeys(("OTHER_API_KEY", "EXPIRED_API_KEY", "LIMITED_API_KEY"), "")
    output, counts = run_suite(build_environment(running.base_url, cast, **missing))
    assert counts.keys() == {"passed", "skipped"}, output
    assert set(re.findall(r"needs ([A-Z_]+)", output)) == missing.keys()


def test_ctrl_c_deletes_the_listings_of_the_run(running: RunningService, cast: Cast) -> None:
    creates, reached, released = Counter[str](), threading.Event(), threading.Event()

    def hold_the_fifth_create(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        creates[request.method] += 1
        if request.method == "POST" and creates["POST"] == 5:
            reached.set()
            released.wait(TIMEOUT)
        return answer

    with run_faulty_proxy(running.base_url, hold_the_fifth_create) as base_url:
        environment = build_environment(base_url, cast)
        command = [sys.executable, "-m", "pytest", "-q", str(SUITE)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert reached.wait(TIMEOUT)
            assert len(read_list(running.base_url, cast.alice)) > 1
            process.send_signal(signal.SIGINT)
            output = process.communicate(timeout=TIMEOUT)[0]
        released.set()
    assert "KeyboardInterrupt" in output
    assert read_list(running.base_url, cast.alice) == {}


def forward_unchanged(request: Request, forward: Forward) -> Answer:
    return forward(request)


def changing_requests(method: str, change: Callable[[Request], Request]) -> Fault:
    return lambda request, forward: forward(change(request) if request.method == method else request)


def changing_responses(method: str, change: Callable[[Answer], Answer]) -> Fault:
    def inject(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        return change(answer) if request.method == method and answer.status < 300 else answer

    return inject


def replacing_status(status: int, other: int) -> Fault:
    def inject(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        return answer._replace(status=other) if answer.status == status else answer

    return inject


def changing_records(**convert: Callable[[Any], Any]) -> Fault:
    def change(record: dict[str, Any]) -> dict[str, Any]:
        return record | {name: function(record[name]) for name, function in convert.items()}

    def change_all(answer: Answer) -> Answer:
        records = answer.fields.get("listings")
        fields = change(answer.fields) if records is None else {"listings": [change(record) for record in records]}
        return answer._replace(fields=fields)

    return changing_responses("GET", change_all)


def add_missing_title(request: Request) -> Request:
    return request if request.fields is None else request.with_fields(**{"title": "No title"} | request.fields)


def repair_json(request: Request) -> Request:
    return request.with_fields(title="Repaired", content="Repaired") if request.fields is None else request


def drop_other_changes(request: Request) -> Request:
    fields = request.fields or {}
    return request.with_fields(**{**fields, "price": 0}) if "is_active" in fields else request


def add_type(request: Request) -> Request:
    return request if request.fields is None else request.with_fields(**{"type": "service"} | request.fields)


def list_an_inactive_record(answer: Answer) -> Answer:
    if "listings" not in answer.fields:
        return answer
    return answer._replace(fields={"listings": [*answer.fields["listings"], {"id": 1, "is_active": False}]})


def ignore_authorization(request: Request, forward: Forward) -> Answer:
    headers = {name: value for name, value in request.headers.items() if name != "Authorization"}
    return forward(request._replace(headers=headers))


def add_status_to_errors(request: Request, forward: Forward) -> Answer:
    answer = forward(request)
    return answer._replace(fields=answer.fields | {"status": answer.status}) if answer.status >= 400 else answer


def accept_foreign_reads(request: Request, forward: Forward) -> Answer:
    answer = forward(request)
    return Answer(200, {"id": 1}) if request.method == "GET" and answer.status == 403 else answer


class LimitOf500:
    """Rejects the requests of each key after the first 500."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def __call__(self, request: Request, forward: Forward) -> Answer:
        key = request.headers["X-API-Key"]
        self._counts[key] += 1
        return Answer(429, {"error": "Too many requests"}) if self._counts[key] > 500 else forward(request)


FAULTS: dict[str, tuple[Fault, str]] = {
    "create returns 200": (replacing_status(201, 200), "test_a_create_returns_201"),
    "create without a message": (
        changing_responses("POST", lambda answer: answer._replace(fields={"id": answer.fields["id"]})),
        "test_a_create_returns_201",
    ),
    "title is optional": (changing_requests("POST", add_missing_title), "test_a_create_without_a_required_field"),
    "malformed JSON is repaired": (changing_requests("POST", repair_json), "test_a_create_without_valid_json"),
    "default type is service": (changing_requests("POST", add_type), "test_a_listing_without_a_type_is_a_product"),
    "price is a string": (changing_records(price=str), "test_a_record_has_the_field"),
    "times in ISO 8601": (
        changing_records(created_at=lambda time: time.replace(" ", "T")),
        "test_a_record_has_the_field",
    ),
    "inactive listings are listed": (
        changing_responses("GET", list_an_inactive_record),
        "test_the_list_has_no_inactive_listings",
    ),
    "PUT resets the category": (
        changing_requests("PUT", lambda request: request.with_fields(**{"category": ""} | (request.fields or {}))),
        "test_an_update_leaves_fields_that_were_not_sent",
    ),
    "PATCH of is_active loses the price": (
        changing_requests("PATCH", drop_other_changes),
        "test_is_active_false_pauses_a_listing",
    ),
    "Authorization is ignored": (ignore_authorization, "test_a_key_is_accepted_as_a_bearer_token"),
    "an unknown key is 403": (replacing_status(401, 403), "test_every_endpoint_is_401_for_an_invalid_key"),
    "others can read": (accept_foreign_reads, "test_a_listing_of_another_account_is_403"),
    "errors have two fields": (add_status_to_errors, "test_every_error_is_an_object_with_one_string"),
    "a limit of 500": (LimitOf500(), "test_a_key_has_1000_requests_an_hour"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_case_fails_when_the_server_has_the_fault(
    running: RunningService, cast: Cast, create_once: Callable[[str], Person], fault: str
) -> None:
    inject, case = FAULTS[fault]
    with run_faulty_proxy(running.base_url, inject) as base_url:
        environment = build_environment(base_url, cast, LIMITED_API_KEY=create_once("dora").key)
        output, counts = run_suite(environment, "-k", case)
    assert counts["failed"], output
    assert not counts["error"], output


def test_the_same_cases_pass_without_a_fault(
    running: RunningService, cast: Cast, create_once: Callable[[str], Person]
) -> None:
    with run_faulty_proxy(running.base_url, forward_unchanged) as base_url:
        environment = build_environment(base_url, cast, LIMITED_API_KEY=create_once("dora").key)
        output, counts = run_suite(environment, "-k", " or ".join(case for _, case in FAULTS.values()))
    assert counts.keys() == {"passed"}, output


TREES = [ast.parse(path.read_text("utf-8")) for path in SUITE.glob("*.py")]


def find_sentences() -> set[str]:
    """Return the sentences of all cases, from the source: the mark exists only in the suite's own configuration."""
    sentences = set[str]()
    for tree in TREES:
        names = {unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and unparse(node.func) in {"sentence", "row", "accepted"}:
                value = names.get(unparse(node.args[0]), node.args[0])
                sentences |= {str(value.value)} if isinstance(value, ast.Constant) else set()
    return sentences


def test_each_case_quotes_the_specification() -> None:
    assert [sentence for sentence in find_sentences() if sentence not in SPECIFICATION] == []


def test_every_rule_of_the_specification_has_a_case() -> None:
    _, _, rules = SPECIFICATION.partition("### Listing record")
    rows = re.findall(r"^(?:\| .* \||[0-9]\. .*)$", rules, re.MULTILINE)
    headings = ("Field |", "State |", "Method |", "Status |", "Limit |")
    sentences = find_sentences()
    missing = [
        row
        for row in rows
        if not row.removeprefix("| ").startswith(headings) and not any(sentence in row for sentence in sentences)
    ]
    assert {row[3:] for row in missing} == NOT_VISIBLE


def test_the_cases_need_only_pytest_and_the_standard_library() -> None:
    imports = [node for tree in TREES for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        name.split(".")[0]
        for node in imports
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)])
        if not name.startswith("tests.specification.")
    }
    assert names - sys.stdlib_module_names == {"pytest"}
