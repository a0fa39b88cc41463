"""The documentation of the API: the OpenAPI document, the reference page and the guides."""
