"""Error responses."""

from rest_framework.exceptions import ValidationError
from rest_framework.views import exception_handler


def handle(error, context):
    """Convert every error to the same format."""
    response = exception_handler(error, context)
    if response is None:
        return None
    if isinstance(error, ValidationError) and isinstance(response.data, dict):
        faults = [f"{name}: {' '.join(map(str, told))}" for name, told in response.data.items()]
        response.data = {"error": "; ".join(faults)}
    else:
        response.data = {"error": str(response.data.get("detail", error))}
    return response
