"""Operations of batches, and a batch that is accepted."""

from typing import Any

from tests.conftest import Client

LAMP = {"title": "Lamp", "content": "Brass."}


def run(client: Client, *operations: Any, query: str = "", headers: dict[str, str] | None = None, **more: Any) -> Any:
    """Send a batch that is accepted, and return its results."""
    body = {"operations": list(operations), **more}
    response = client.post(f"/batch{query}", json=body, headers=headers or {})
    assert response.status_code == 200, response.text
    assert list(response.json()) == ["results"]
    return response.json()["results"]


def create(**fields: Any) -> dict[str, Any]:
    return {"op": "create", "listing": {**LAMP, **fields}}


def update(listing: int, **changes: Any) -> dict[str, Any]:
    return {"op": "update", "id": listing, "changes": changes}


def delete(listing: int) -> dict[str, Any]:
    return {"op": "delete", "id": listing}


def get_statuses(results: list[dict[str, Any]]) -> list[int]:
    return [result["status"] for result in results]
