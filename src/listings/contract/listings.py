"""Types of the store's methods on listings."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from listings.domain.errors import Problem
from listings.domain.model import (
    Listing,
    ListingChange,
    NewListing,
)

Decide: TypeAlias = Callable[[Listing | None], ListingChange]
"""Judges a row inside the transaction that may change it: returns what to write, or raises a Problem.

Pure, since it may be called again."""


T = TypeVar("T")


class Promise(asyncio.Future[T]):
    """A result that is sure to come, so that a request may wait for it without a task, which is cheaper."""


class IdempotencyRecord(NamedTuple):
    """An idempotency key that an account gives to a write, to be kept with what the write came to (decision G36)."""

    key: str
    digest: bytes  # SHA-256 of the request
    moment: int  # seconds since 1970
    oldest: int  # claims before this moment count no more


class Added(NamedTuple):
    """A new listing, or the one that an earlier write under the same claim has made."""

    listing_id: int
    replayed: bool = False
    revision: int | None = None  # the account's, to which this has raised it, where the store tells it


class AddStep(NamedTuple):
    """A listing to be made."""

    new: NewListing
    created_at: str


class ChangeStep(NamedTuple):
    """A listing to be changed."""

    listing_id: int
    decide: Decide


Step: TypeAlias = AddStep | ChangeStep | Problem
"""What is to be done; a Problem is refused as it is."""


StepResult: TypeAlias = int | Listing | Problem
"""The new listing's id, the changed listing, or why the step was refused."""


class Batch(NamedTuple):
    """Steps to be done in one transaction, in their order."""

    steps: Sequence[Step]
    atomic: bool  # one refused step undoes all
    dry_run: bool  # all is undone
    record: Callable[[Sequence[StepResult]], str]  # what to keep with a claim: pure


class IndexStep(NamedTuple):
    """What a step of `Store.index_market` or `Store.index_accounts` did."""

    done: int  # listings
    left: bool = False  # whether there is more to do
    seconds: float = 0.0  # for which writes of others may have had to wait
    preparing: float = 0.0  # seconds that it took before, in parts between which others had their turns
    contended: bool = False  # whether others have written since the step before, or with this one
