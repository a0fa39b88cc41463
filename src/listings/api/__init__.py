"""The JSON interface under /api/v1, on plain ASGI."""
