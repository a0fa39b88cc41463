"""Check any server against the specification, sentence by sentence, over HTTP. Nothing here depends on this service."""
