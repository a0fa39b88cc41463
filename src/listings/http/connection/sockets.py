"""The state of a transport's socket in the kernel."""

import fcntl
import select
import socket
import struct
import termios

from listings.http.connection.write_buffer import Transport

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # l_onoff, l_linger
_ZERO_INT = bytes(4)


def is_reset(transport: Transport) -> bool:
    """Return whether the client has reset an open connection."""
    if transport.is_closing():
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return bool(poll.poll(0))  # only for an error or a reset, since it polls for nothing else


def has_unread_bytes(transport: Transport) -> bool:
    """Return whether bytes have arrived on an open connection that are not read yet."""
    if transport.is_closing():
        return False
    descriptor = transport.get_extra_info("socket").fileno()
    return fcntl.ioctl(descriptor, termios.FIONREAD, _ZERO_INT) != _ZERO_INT


def reset(transport: Transport) -> None:
    """Reset a connection and discard unsent data, including the kernel's unless it is closing already."""
    if not transport.is_closing():
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
