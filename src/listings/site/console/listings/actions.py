"""The actions on listings, on one or on many: pause, resume, delete, restore, change the price."""

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

import msgspec

from listings.domain.errors import Problem
from listings.domain.faults import FieldError
from listings.domain.fields import MAX_PRICE_CENTS
from listings.domain.listings import ChangeStep
from listings.domain.model import Listing, ListingChange
from listings.domain.number_text import format_count
from listings.domain.rules import Money
from listings.service import Services
from listings.service.members.sessions import Member
from listings.site.presentation import format_dollars, format_price

ACTIONS: Mapping[str, str] = {"pause": "paused", "resume": "resumed", "delete": "deleted", "restore": "restored"}
"""The actions on listings, with their past participles."""

PRICE = "price"
"""The action that changes prices; it is offered for several listings only."""

NEEDS_PLAN = {"resume", "restore", PRICE}
"""As in the API, publishing or editing a listing needs a plan."""

PRICE_MODES: Mapping[str, str] = {"percent": "Change it by (percent)", "set": "Set the price to (NZD)"}
_PERCENT = re.compile(r"[+-]?[0-9]{1,6}(?:\.[0-9]{1,6})? ?%?")
_MIN_PERCENT, _MAX_PERCENT = -99, 1000


class PriceChange(NamedTuple):
    """A new price in cents, or a change in percent, which applies to listings with a price only."""

    cents: int | None
    percent: Decimal = Decimal()

    def apply(self, cents: int) -> int:
        """Return the new price in cents, rounded half up. A percentage never makes a price 0, which means none."""
        if self.cents is not None or not cents:
            return cents if self.cents is None else self.cents
        changed = max(1, int((cents * (100 + self.percent) / 100).to_integral_value(ROUND_HALF_UP)))
        if changed > MAX_PRICE_CENTS:
            raise Problem("invalid_request", f"Its price would be {format_price(changed, 'fixed')}, which is too high")
        return changed


def read_price_change(mode: str, text: str) -> PriceChange:
    """Parse the form of a price change. Raises Problem("invalid_request")."""
    if not text.strip():
        raise Problem("invalid_request", "Enter an amount, such as -10 or 19.90. A price of 0 removes the price")
    if mode == "percent" or text.rstrip().endswith("%"):
        if not _PERCENT.fullmatch(text.strip()):
            raise Problem("invalid_request", "Enter a percentage, such as -10 or 2.5")
        percent = Decimal(text.strip().rstrip("% "))
        if not _MIN_PERCENT <= percent <= _MAX_PERCENT:
            raise Problem("invalid_request", f"Enter a percentage from {_MIN_PERCENT} to {_MAX_PERCENT}")
        return PriceChange(None, percent)
    try:
        rule = Money(MAX_PRICE_CENTS)
        return PriceChange(rule(rule.from_text(text) or 0))
    except FieldError as error:
        raise Problem("invalid_request", f"The price {error}") from None


def describe_bulk_change(action: str, changed: int, unchanged: int) -> str:
    """Return the notice of a bulk change, such as "48 listings paused. 2 were already paused."."""
    if action == PRICE:
        subject, verb = ("price", "was") if changed == 1 else ("prices", "were")
        text = f"The {subject} of {format_count(changed, 'listing')} {verb} changed."
        return f"{text} {unchanged:,} stayed the same." if unchanged else text
    text = f"{format_count(changed, 'listing')} {ACTIONS[action]}."
    verb = "was" if unchanged == 1 else "were"
    return f"{text} {unchanged:,} {verb} already {ACTIONS[action]}." if unchanged else text


def describe_action(action: str, price: PriceChange | None) -> str:
    """Return an action for the audit event: a JSON object without its end."""
    detail: dict[str, object] = {"action": action}
    if price is not None:
        detail |= {"cents": price.cents} if price.cents is not None else {"percent": str(price.percent)}
    return msgspec.json.encode(detail)[:-1].decode()


def name_action(detail: Mapping[str, Any]) -> str:
    """Return an action in an audit event as a text such as "set the price of 279 listings to $10"."""
    listings = format_count(detail["listings"], "listing")
    if detail["action"] != PRICE:
        return f"{ACTIONS[detail['action']]} {listings}"
    if "percent" in detail:
        return f"changed the price of {listings} by {Decimal(detail['percent']):+f}%"
    cents = detail["cents"]
    return f"set the price of {listings} to {format_dollars(cents)}" if cents else f"removed the price of {listings}"


def build_step(
    services: Services, member: Member, action: str, listing_id: int, price: PriceChange | None = None
) -> ChangeStep:
    """Return the step for an action, with the console's own messages if the listing's state forbids it."""

    def decide(listing: Listing | None) -> ListingChange:
        change: ListingChange = {"is_active": action == "resume"}
        if listing is not None and listing.account_id == member.account.id:
            require_state(listing, action)
            change = change if price is None else {"price_cents": price.apply(listing.price_cents)}
        steps = services.listings.steps
        if action == "delete":
            return steps.delete(member.caller, listing_id).decide(listing)
        if action == "restore":
            return steps.restore(member.caller, listing_id).decide(listing)
        return steps.update(member.caller, listing_id, change).decide(listing)

    return ChangeStep(listing_id, decide)


def require_state(listing: Listing, action: str) -> None:
    """Raise Problem if the action is not possible in the listing's state."""
    is_deleted = listing.deleted_at is not None
    if action == "restore" and not is_deleted:
        raise Problem("invalid_request", "It is not deleted")
    if action != "restore" and is_deleted:
        message = "It is already deleted" if action == "delete" else "It is deleted. Restore it first"
        raise Problem("listing_not_found", message)
