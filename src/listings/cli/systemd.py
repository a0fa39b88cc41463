"""Tell systemd that the service is ready and alive (sd_notify(3), sd_watchdog_enabled(3))."""

import asyncio
import os
import socket
from contextlib import suppress


class Notifier:
    """Sends messages to systemd, or none if it did not start this process. Processes that this one starts can't."""

    def __init__(self) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address  # @: an abstract socket
        self._watchdog_seconds = int(os.environ.pop("WATCHDOG_USEC", "0")) / 1_000_000

    def notify_ready(self) -> None:
        """Say that requests are served, and from now on that the event loop runs."""
        self._send(b"READY=1")
        if self._watchdog_seconds:
            self._notify_alive()

    def _notify_alive(self) -> None:
        self._send(b"WATCHDOG=1")
        asyncio.get_running_loop().call_later(self._watchdog_seconds / 3, self._notify_alive)

    def _send(self, message: bytes) -> None:
        if not self._address:
            return
        # A stop of systemd's socket must not stop the service.
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
            sender.sendto(message, self._address)
