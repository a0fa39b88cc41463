"""The documentation of the API: the OpenAPI document and the reference page."""
