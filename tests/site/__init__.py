"""The pages, as visitors and their browsers meet them."""
