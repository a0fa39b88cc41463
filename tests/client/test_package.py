"""The package stands alone: nothing of the server, few lines, few libraries."""

import ast
import sys
from pathlib import Path

import listings_client

SOURCE = Path(listings_client.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
LIBRARIES = {"click", "httpx2", "listings_client"}
OF_AGENTS = {"mcp", "pydantic"}  # of the extra


def list_imports(module: Path) -> set[str]:
    tree = ast.parse(module.read_text("utf-8"))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in named}


def test_no_module_imports_the_server_or_other_libraries() -> None:
    assert len(MODULES) > 5
    imported = set().union(*map(list_imports, MODULES)) - set(sys.stdlib_module_names)
    assert imported == LIBRARIES | OF_AGENTS
    users = {module.name for module in MODULES if OF_AGENTS & list_imports(module)}
    assert users == {"mcp.py"}
