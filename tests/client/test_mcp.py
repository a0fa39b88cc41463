"""The MCP server through the client of the SDK: in memory, and over stdio."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.types import ElicitResult

from listings_client import Client
from listings_client.mcp import build_server
from tests.cli.commands import PROGRAM, clean_environment
from tests.client.lst import Lst

TOOLS = ["find", "get", "plan", "apply", "undo", "what_changed"]
ROWS = [
    {"external_id": "ü-1", "title": "Lamp", "content": "Brass.\nTwo lines.", "price": 19.9},
    {"external_id": "ü-2", "title": "Chair", "content": "Oak."},
]
MAX_TOKENS = 6_000
CHARACTERS_PER_TOKEN = 3  # fewer than in English text, so that the limit holds for any tokenizer

Session = Callable[[McpClient], Awaitable[Any]]


class Person:
    """Answers the questions of the server, and remembers them."""

    def __init__(self, answer: str = "accept", *, applies: bool = True) -> None:
        self.questions: list[str] = []
        self._answer = answer
        self._applies = applies

    async def __call__(self, _context: Any, parameters: Any) -> ElicitResult:
        self.questions.append(parameters.message)
        content = {"apply": self._applies} if self._answer == "accept" else None
        return ElicitResult(action=self._answer, content=content)  # type: ignore[arg-type]  # one of three literals


@pytest.fixture(params=["memory", "memory of 2025", "stdio"])
def run(request: pytest.FixtureRequest, lst: Lst) -> Iterator[Callable[..., Any]]:
    """Run a session with a server, over each transport and protocol."""
    with Client(lst.seller.key, lst.base_url) as seller:

        def run_session(session: Session, person: Person | None = None) -> Any:
            async def main() -> Any:
                server: Any = build_server(seller, lst.folder)
                if request.param == "stdio":
                    environment = {**clean_environment(), **lst.environment, "XDG_CONFIG_HOME": str(lst.folder)}
                    command = str(PROGRAM.with_name("lst-mcp"))
                    server = StdioServerParameters(command=command, env=environment, cwd=lst.folder)
                mode = "legacy" if "2025" in request.param else "auto"
                callback: Any = person
                async with McpClient(server, mode=mode, elicitation_callback=callback) as client:
                    return await session(client)

            return asyncio.run(main())

        yield run_session


async def call(client: McpClient, tool: str, **arguments: Any) -> Any:
    """Return the content of a result, which must not be an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


async def plan_and_apply(client: McpClient) -> tuple[Any, Any]:
    planned = await call(client, "plan", rows=ROWS)
    return planned, await call(client, "apply", plan=planned["result"]["plan"])


def test_the_tools_are_few_and_small(run: Callable[..., Any]) -> None:
    async def session(client: McpClient) -> Any:
        return (await client.list_tools()).tools

    tools = run(session)
    assert [tool.name for tool in tools] == TOOLS
    text = json.dumps([tool.model_dump(mode="json", exclude_none=True) for tool in tools], ensure_ascii=False)
    assert len(text) / CHARACTERS_PER_TOKEN < MAX_TOKENS
    assert all(tool.description for tool in tools)
    assert [tool.name for tool in tools if tool.annotations.read_only_hint] == ["find", "get", "plan", "what_changed"]


def test_a_plan_is_applied_after_the_person_has_seen_it(run: Callable[..., Any], lst: Lst) -> None:
    person = Person()
    planned, applied = run(plan_and_apply, person)
    assert planned["lines"][-1] == "2 to create, 0 to update, 0 to delete, 0 unchanged, 0 not in the file"
    assert planned["mode"] == "live"
    (question,) = person.questions
    assert question.startswith("Mode: live\ncreate ü-1\n  title: Lamp\n")
    assert applied["result"]["applied"] == 2
    assert lst.read()["ü-1"].content == "Brass.\nTwo lines."


@pytest.mark.parametrize("person", [Person("decline"), Person("cancel"), Person(applies=False), None])
def test_without_a_yes_nothing_is_written(run: Callable[..., Any], lst: Lst, person: Person | None) -> None:
    _, applied = run(plan_and_apply, person)
    assert applied["result"]["applied"] == 0
    assert lst.read() == {}
    command = applied["lines"][0].partition("The person can run: lst ")[2].split()
    assert lst.ok(*command).startswith("2 applied")
    assert lst.read().keys() == {"ü-1", "ü-2"}


def test_listings_are_found_read_and_undone(run: Callable[..., Any], lst: Lst) -> None:
    async def session(client: McpClient) -> Any:
        planned, _ = await plan_and_apply(client)
        (found,) = (await call(client, "find", words="lamp"))["result"]
        assert (await call(client, "find", external_id="ü-1"))["result"] == [found]
        read = (await call(client, "get", listing=found["id"]))["result"]
        changed = (await call(client, "what_changed"))["result"]
        dry = (await call(client, "undo", plan=planned["result"]["plan"]))["result"]
        before = len(lst.read())
        done = (await call(client, "undo", plan=planned["result"]["plan"], dry_run=False))["result"]
        return read, changed, dry, before, done

    read, changed, dry, before, done = run(session, Person())
    assert (read["title"], read["price"], read["external_id"]) == ("Lamp", 19.9, "ü-1")
    assert [one["kind"] for one in changed] == ["batch"]
    assert (dry["status"], dry["reverted"], before) == ("planned", 2, 2)
    assert (done["status"], done["reverted"]) == ("finished", 2)
    assert lst.read() == {}


def test_one_change_set_is_undone(run: Callable[..., Any], lst: Lst) -> None:
    with lst.connect() as client:
        client.create(title="Lamp", content="Brass.")
        last = client.last_change()

    async def session(client: McpClient) -> Any:
        return await call(client, "undo", change=last, dry_run=False)

    assert run(session)["result"]["reverted"] == 1


@pytest.mark.parametrize("name", ["missing", "../../etc/passwd", ""])
def test_an_unknown_plan_is_an_error(run: Callable[..., Any], name: str) -> None:
    async def session(client: McpClient) -> Any:
        return await client.call_tool("apply", {"plan": name})

    result = run(session, Person())
    assert result.is_error
    assert f"There is no plan {name}" in result.content[0].text


def test_invalid_rows_are_an_error_that_names_them(run: Callable[..., Any], tmp_path: Path) -> None:
    async def session(client: McpClient) -> Any:
        return await client.call_tool("plan", {"rows": [{"title": "Lamp"}, {"external_id": "a", "price": "x"}]})

    result = run(session)
    assert result.is_error
    assert "No column" in result.content[0].text or "external_id is empty" in result.content[0].text
    assert not list(tmp_path.glob("*.json"))
