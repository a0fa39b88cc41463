"""One connection: its parser, its requests with their responses, its deadlines, and its unsent bytes."""
