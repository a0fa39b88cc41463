"""Payments that the operator takes."""

from collections.abc import Mapping

from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service.payments.provider import NextStep, PaidEvent


class ManualPayments:
    """Payments that the operator takes. The operator extends the plan with a command."""

    name = "manual"

    async def start_checkout(self, account: Account, months: int, return_url: str) -> NextStep:  # noqa: ARG002 - no page to return from
        command = f"listings account plan {account.id} --months {months}"
        return NextStep(text=f"Ask the operator to take the payment and extend the plan with `{command}`.")

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> PaidEvent | None:  # noqa: ARG002 - no event is accepted
        raise Problem("payment_refused", "This service takes no payments")
