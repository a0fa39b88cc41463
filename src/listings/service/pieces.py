"""The file to which a ZIP archive is written that is sent in pieces."""


class Pieces:
    """A file to which bytes are only appended."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: `take` returns everything."""

    def take(self) -> bytes:
        """Return the bytes that were added since the last call."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken
