"""Types for the store's methods on listings."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from listings.domain.errors import Problem
from listings.domain.model import (
    Listing,
    ListingChange,
    NewListing,
)

Decide: TypeAlias = Callable[[Listing | None], ListingChange]
"""Receives a row inside the transaction and returns the changes to write, or raises a Problem.

It must be pure, because a store may call it again when it repeats a transaction."""


class IdempotencyRecord(NamedTuple):
    """An idempotency key of an account, stored with the result of the write that used it (decision G36)."""

    key: str
    digest: bytes  # SHA-256 of the request
    moment: int  # Unix time in seconds
    oldest: int  # Unix time in seconds; stored records from before it are ignored


class AddResult(NamedTuple):
    """The id of the new listing, or of the original one if the idempotency key was already used."""

    listing_id: int
    replayed: bool = False
    revision: int | None = None  # the account's revision after the write, if the store knows it


class AddStep(NamedTuple):
    """Create a listing."""

    new: NewListing
    created_at: str


class ChangeStep(NamedTuple):
    """Change a listing."""

    listing_id: int
    decide: Decide


Step: TypeAlias = AddStep | ChangeStep | Problem
"""A step of a batch. A Problem is a step that was rejected before the batch; it is also the result of the step."""


StepResult: TypeAlias = int | Listing | Problem
"""The id of the new listing, the changed listing, or the reason why the step was rejected."""


class Batch(NamedTuple):
    """Steps to run in one transaction, in order."""

    steps: Sequence[Step]
    atomic: bool  # roll back everything if a step is rejected
    dry_run: bool  # always roll back
    record: Callable[[Sequence[StepResult]], str]  # pure; returns the result to store with the idempotency key


class IndexStep(NamedTuple):
    """The outcome of a call of `Store.index_market` or `Store.index_accounts`."""

    done: int  # listings indexed
    left: bool = False  # whether more work is left
    seconds: float = 0.0  # during which other writers may have been blocked
    preparing_seconds: float = 0.0  # before that, with pauses in which others can write
    contended: bool = False  # whether others have written since the previous step or together with this one
