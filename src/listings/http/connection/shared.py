"""What all connections of an event loop share."""

from collections.abc import Mapping

from listings.http.byte_budget import ByteBudget
from listings.http.connection.write_buffer import WriteBuffer
from listings.http.throttle import Throttle
from listings.http.turns import Turns


class Shared:
    """The budgets, queues and buffers of one event loop."""

    def __init__(self, budgets: Mapping[str, ByteBudget]) -> None:
        """`budgets` are by class of owners."""
        self.budgets = budgets
        self.write_buffer = WriteBuffer()
        self.throttle = Throttle()
        self.receiving = Throttle()
        self.turns = Turns()
        self.waiting_bytes = 0  # of requests behind running ones
