"""The last weeks of the demo's first seller: views, messages from buyers and API requests."""

from collections.abc import Sequence
from http import HTTPStatus
from random import Random

from listings.domain.audience import Message
from listings.domain.history import UsageSlot
from listings.domain.model import Caller
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS
from listings.service import Services

DAYS = 20  # over which the demo's listings were created
USAGE_DAYS = 30
_MAX_VIEWS = 5  # of a listing on a day
_MESSAGES = (
    ("Hana Rangi", "hana@demo.example", "Kia ora, is this still available? I could pick it up on Saturday."),
    ("Tom Fraser", "tom@demo.example", "Would you take a bit less for cash?\n\nThanks, Tom"),
    ("Mele Taufa", "mele@demo.example", "What are the measurements, please?"),
)


async def add(services: Services, caller: Caller, ids: Sequence[int]) -> None:
    """Store what happened to the seller's listings, oldest first. The same in every demo."""
    now, random = int(services.clock()), Random(1)  # noqa: S311 - not for security
    store, partition = services.revisions, (caller.bucket, caller.account_id)
    for day in range(now // DAY_SECONDS - DAYS, now // DAY_SECONDS + 1):
        views = {listing_id: random.randrange(_MAX_VIEWS) for listing_id in ids}
        await store.record_views(day, {one: [random.randbytes(16) for _ in range(n)] for one, n in views.items() if n})
    for number, (listing_id, message) in enumerate(zip(ids, _MESSAGES, strict=False)):
        moment = now - (len(_MESSAGES) - number) * 2 * DAY_SECONDS
        stored = Message(moment, f"{number:016x}", listing_id, *message)
        await store.add_message(partition, stored, None, stored=services.messages.days > 0)
    hour = now // HOUR_SECONDS
    used = {
        UsageSlot(caller.account_id, hour - back, caller.key_id, HTTPStatus.OK): random.randrange(40)
        for back in range(1, USAGE_DAYS * 24, 5)
    }
    await store.add_usage({slot: count for slot, count in used.items() if count}, [], 0)
