"""The writer thread: it runs the writes of all requests in batches, each in one transaction."""
