"""Call each tool of the MCP server that FastMCP makes from the OpenAPI document, with every optional argument once."""

import asyncio
import json
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
from fastmcp import Client, FastMCP

DOCUMENT: dict[str, Any] = json.loads(Path(os.environ["DOCUMENT"]).read_bytes())
NUMBERS = count(1)
# Values for arguments whose example does not fit the new listing of each call.
VALUES: dict[str, Any] = {"If-None-Match": '"v9.0"', "after": 0, "limit": 5, "timeout": 0, "before": 5}


NEED_A_PICTURE = {"uploadImage", "deleteImage"}
"""The arguments of a tool are JSON, so an agent can't upload a picture."""


def resolve(part: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference."""
    while "$ref" in part:
        found: Any = DOCUMENT
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part


def list_examples(operation: dict[str, Any]) -> dict[str, Any]:
    """Return an example of each parameter and each field of the body."""
    parameters = map(resolve, operation["parameters"])
    examples = {one["name"]: one["example"] for one in parameters if "example" in one}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    for name, field in resolve(content.get("schema", {})).get("properties", {}).items():
        if "examples" in field:
            examples[name] = field["examples"][0]
    return examples


async def main() -> None:
    """Call all tools."""
    key = {"X-API-Key": os.environ["ALICE_KEY"]}
    async with httpx2.AsyncClient(base_url=os.environ["LISTINGS_URL"], headers=key) as http:
        server = FastMCP.from_openapi(openapi_spec=DOCUMENT, client=http)
        async with Client(server) as client:
            tools = {tool.name: tool for tool in await client.list_tools()}
            items = [item for methods in DOCUMENT["paths"].values() for item in methods.items()]
            operations = [operation for name, operation in items if name != "parameters"]
            assert set(tools) == {operation["operationId"] for operation in operations}
            calls = 0
            for operation in operations:
                if operation["operationId"] in NEED_A_PICTURE:
                    continue
                calls += await call(client, operation, tools[operation["operationId"]].input_schema)
    sys.stdout.write(f"mcp: {len(tools)} tools, {calls} calls\n")


async def call(client: Client[Any], operation: dict[str, Any], schema: dict[str, Any]) -> int:
    """Call a tool without optional arguments, and with each of them. Return the number of calls."""
    name, examples = operation["operationId"], list_examples(operation) | VALUES
    optional = [argument for argument in schema["properties"] if argument not in schema.get("required", ())]
    done = 0
    for argument in ["", *optional]:
        if argument and argument not in examples:
            continue
        number = next(NUMBERS)
        new = {"title": "Lamp", "content": "Brass.", "external_id": f"mcp-{number}"}
        created = (await client.call_tool("createListing", new)).structured_content
        changed = (await client.call_tool("listListingChanges", {"id": created["id"]})).structured_content
        required = {
            "createListing": {"title": "Chair", "content": "Oak."},
            "runBatch": {"operations": [{"op": "delete", "id": created["id"]}]},
            "revertChanges": {"change": changed["last"]},
            "getRevert": {"id": 1},
            "updateListing": {"id": created["id"], "title": "Desk"},
            "updateListingByPut": {"id": created["id"], "title": "Desk"},
        }.get(name, {"id": created["id"]} if "id" in schema["properties"] else {})
        is_unique = argument == "Idempotency-Key" or (argument == "external_id" and name != "listListings")
        value = f"mcp-{number}-x" if is_unique else examples.get(argument)
        sent = required | ({argument: value} if argument else {})
        if name == "revertChanges" and argument in {"import", "revert", "group", "key", "since", "until"}:
            continue  # another subject than the change
        result = await client.call_tool(name, sent)
        assert not result.is_error, (name, sent, result)
        done += 1
    return done


asyncio.run(main())
