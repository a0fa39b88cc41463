"""Checks any server against the specification, sentence by sentence, over HTTP. It knows nothing of this service."""
