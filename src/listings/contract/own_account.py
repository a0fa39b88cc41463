"""The store's contract for changes that the owner of an account makes to the account itself."""

from typing import Protocol

from listings.contract.history import Actor
from listings.contract.mail import NewMail
from listings.domain.model import Account


class OwnAccountStore(Protocol):
    """Stores email addresses and closed accounts, with the guarantees of `contract.store.Store`."""

    async def add_email_token(self, account_id: int, mail: NewMail, digest: bytes, now: int, expires_at: int) -> bool:
        """Store the token of a queued email; it confirms the recipient's address. Delete the account's expired tokens.

        Return False and store nothing if the email is no longer queued.
        """

    async def find_email_token(self, digest: bytes, now: int) -> tuple[Account, str] | None:
        """Return the account and the email address of a token, or None if it is unknown or has expired."""

    async def confirm_email(self, digest: bytes, now: int, notice: NewMail | None = None) -> Account | None:
        """Set an account's email address to that of its token, mark it as confirmed, and delete its email tokens.

        The account's queued confirmations are deleted too. A changed address invalidates invitations and queues the
        notice. Return None and store nothing if the token is unknown or has expired, or another account has the
        address.

        Raises Problem("account_disabled") if the address would change and the account is disabled.
        """

    async def change_email(
        self, account_id: int, email: str, actor: Actor, password_hash: str | None = None
    ) -> Account | None:
        """Change the email address of an account without a confirmation. It invalidates invitations.

        The address must not be the current one. Return None and store nothing if another account has it.
        Raises Problem("account_disabled"), and Problem("wrong_credentials") if `password_hash` is not the current one.
        """

    async def queue_confirmation(self, account_id: int, mail: NewMail, password_hash: str) -> None:
        """Queue an email to an address, with a link that confirms it.

        Raises Problem("wrong_credentials") if `password_hash` is not the current one.
        """

    async def get_confirmed_email(self, account_id: int) -> str | None:
        """Return the last email address that was confirmed, or None."""

    async def close_account(self, account_id: int, now: int, password_hash: str | None = None) -> None:
        """Disable an account, end its sessions, and store that it is to be erased.

        Raises Problem("wrong_credentials") if `password_hash` is not the current one.
        """

    async def list_closed_accounts(self) -> list[int]:
        """Return the ids of closed accounts that are not erased yet, in ascending order."""
