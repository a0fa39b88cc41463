"""The interface of payment providers, and the default one."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from listings.domain.errors import Problem
from listings.domain.model import Account

MAX_MONTHS = 24


class NextStep(NamedTuple):
    """The next step of a payment: open a URL, or follow an instruction. One of the two is empty."""

    url: str = ""
    text: str = ""


class PaidEvent(NamedTuple):
    """A confirmed payment for a number of months. A provider may report the same `payment_id` several times."""

    payment_id: str
    account_id: int
    months: int


class PaymentProvider(Protocol):
    """A service that takes payments from sellers."""

    @property
    def name(self) -> str:
        """The name that is stored with its payments."""

    async def start_checkout(self, account: Account, months: int, return_url: str) -> NextStep:
        """Start a payment for a number of months. The seller returns to `return_url`. Raises Unavailable."""

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> PaidEvent | None:
        """Parse an event of the provider. Return None if it does not report a payment.

        The names of `headers` are in lower case. Raises Problem("payment_refused") if the event is not from the
        provider, is too old, or is not for a plan.
        """


class ManualPayments:
    """Payments that the operator takes. The operator extends the plan with a command."""

    name = "manual"

    async def start_checkout(self, account: Account, months: int, return_url: str) -> NextStep:  # noqa: ARG002 - no page to return from
        command = f"listings account plan {account.id} --months {months}"
        return NextStep(text=f"Ask the operator to take the payment and extend the plan with `{command}`.")

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> PaidEvent | None:  # noqa: ARG002 - no event is accepted
        raise Problem("payment_refused", "This service takes no payments")
