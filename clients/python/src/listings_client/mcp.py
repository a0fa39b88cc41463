"""An MCP server for agents, over stdio: `lst-mcp`, of the extra `listings-client[mcp]`."""

import json
import shlex
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, Resolve
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from listings_client import operations
from listings_client.apply import Journal, apply_plan
from listings_client.cli import describe_outcome, format_plan, summarise
from listings_client.client import Client
from listings_client.credentials import get_path
from listings_client.errors import ListingsError
from listings_client.files import read_table
from listings_client.plan import Plan, build_plan, load_plan, read_catalogue, require_current

_INSTRUCTIONS = """Manage a seller's listings on a marketplace. Begin in test mode (a key lst_test_…): buyers never see
its listings. Each result has the mode. To change anything, call plan, show its lines to the person, then call apply,
which asks the person. undo takes back a whole plan or change set; look at its dry run first."""
_READS = ToolAnnotations(read_only_hint=True)
_WRITES = ToolAnnotations(destructive_hint=True, idempotent_hint=True)
_MAX_SHOWN = 20


class Confirmation(BaseModel):
    """The answer of the person."""

    apply: bool = Field(description="Apply the plan")


class _Server(MCPServer):
    """Passes on the messages of errors that an agent can act on."""

    async def call_tool(self, *given: Any, **named: Any) -> Any:
        try:
            return await super().call_tool(*given, **named)
        except UnexpectedToolError as error:
            if isinstance(error.__cause__, ListingsError | TypeError | ValueError):
                raise ToolError(str(error.__cause__)) from None
            raise


def build_server(client: Client, folder: Path) -> MCPServer:  # noqa: C901 - six tools
    """Return the server. Its plans are files in the folder."""
    server = _Server("listings", instructions=_INSTRUCTIONS)

    def answer(result: object, lines: list[str] | None = None) -> dict[str, Any]:
        return {"mode": client.mode, "lines": lines or [], "result": json.loads(operations.encode(result))}

    def load(name: str) -> Plan:
        if not name.isalnum() or not (folder / f"{name}.json").exists():
            raise ToolError(f"There is no plan {name}")
        made = load_plan(folder / f"{name}.json")
        require_current(made, client)
        return made

    def ask(plan: str, context: Context) -> Elicit[Confirmation] | Confirmation:
        made = load(plan)
        capabilities = context.client_capabilities
        if capabilities is None or capabilities.elicitation is None:
            return Confirmation(apply=False)
        return Elicit("\n".join([f"Mode: {client.mode}", *format_plan(made), *made.questions]), Confirmation)

    @server.tool(annotations=_READS)
    def find(words: str = "", external_id: str = "", status: str = "active") -> dict[str, Any]:
        """Find listings by words and external id. status: active, inactive, deleted, all. At most 20, newest first."""
        filters: Any = {"q": words or None, "external_id": external_id or None, "status": status}
        names = ("id", "external_id", "title", "price", "is_active")
        found = islice(client.list(page_size=_MAX_SHOWN, **filters), _MAX_SHOWN)
        return answer([{name: getattr(one, name) for name in names} for one in found])

    @server.tool(annotations=_READS)
    def get(listing: int) -> dict[str, Any]:
        """Get all fields of a listing by id."""
        return answer(client.get(listing))

    @server.tool(annotations=_READS)
    def plan(rows: list[dict[str, Any]], delete: bool = False, max_delete: int = 0) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """Compare rows with the listings, and write a plan. Nothing is changed.

        A row has external_id and the fields to set, such as title, content, price, images. A new one needs title and
        content. Without delete, listings without a row stay. Returns the id of the plan, for apply and undo.
        """
        file = folder / "rows.jsonl"
        file.write_bytes(b"".join(operations.encode(row) + b"\n" for row in rows))
        catalogue = read_catalogue(client, with_last=False)
        made = build_plan(client, catalogue, read_table(file, {})[0], delete=delete, max_delete=max_delete)
        made.save(folder / f"{made.id}.json")
        return answer({**summarise(made), "plan": made.id}, format_plan(made))

    @server.tool(annotations=_WRITES)
    def apply(plan: str, answered: Annotated[ElicitationResult[Confirmation], Resolve(ask)]) -> dict[str, Any]:
        """Apply a plan after the person has confirmed it. Listings that were changed since are skipped."""
        made, file = load(plan), folder / f"{plan}.json"
        if not isinstance(answered, AcceptedElicitation) or not answered.data.apply:
            return answer({"applied": 0}, [f"Not confirmed. The person can run: lst apply {shlex.quote(str(file))}"])
        return answer(*describe_outcome(made, apply_plan(client, made, Journal(file, made), strict=False)))

    @server.tool(annotations=_WRITES)
    def undo(plan: str = "", change: int = 0, dry_run: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """Undo a plan or a change set. Later changes stay. dry_run shows what would happen."""
        return answer(client.revert(dry_run=dry_run, **({"group": f"lst-{plan}"} if plan else {"change": change})))

    @server.tool(annotations=_READS)
    def what_changed() -> dict[str, Any]:
        """Show the latest 20 change sets: who changed which fields, from what to what. At most 20 listings of each."""
        found = client.changes(max(0, client.last_change() - _MAX_SHOWN))
        return answer([replace(one, changes=one.changes[:_MAX_SHOWN]) for one in found])

    return server


def main() -> None:
    """Serve over stdio, with the key that lst uses."""
    folder = get_path().with_name("plans")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Client() as client:
        build_server(client, folder).run("stdio")
