"""The JSON API under /api/v1, as a plain ASGI application."""
