"""What checks begin with: listings made for them, and answers that several of them look at, asked for once.

Whatever fails here is the finding of the check that is about it; all others are prevented by it.
"""

from functools import cached_property
from typing import NamedTuple

from listings.conform.session import Body, Credential, Exchange, Session, id_of
from listings.conform.verdicts import Broken, NotChecked, Prevented

# Every field that the record shows and a client may set, with values that nobody has reason to refuse.
SHOWN: dict[str, object] = {
    "content": "We mend bicycles, at your home too.",
    "type": "service",
    "category": "Repairs",
    "images": ["https://images.example/1.jpg", "https://images.example/2.jpg"],
    "price": 1250.5,
    "price_type": "negotiable",
    "location": "12 Cuba Street",
    "region": "Wellington",
}
PLACE: dict[str, object] = {"district": "Te Aro", "latitude": -41.2924, "longitude": 174.7787}
NEW_VALUES: dict[str, object] = {
    "content": "Sleeps four.",
    "type": "rental",
    "category": "Tents",
    "images": ["https://images.example/3.jpg"],
    "price": 75.25,
    "price_type": "per_night",
    "location": "3 Queen Street",
    "region": "Auckland",
}
NOT_COMPARED = {"updated_at", "view_count"}  # which change as the service decides
UNKNOWN_ID = "2147480573"  # nobody's, since ids that are handed out one after the other are far from it


class Sample(NamedTuple):
    """A record as the server shows it, where it did, and what the listing was created with."""

    where: str
    sent: dict[str, object]
    record: dict[str, object]


class Update(NamedTuple):
    """A listing's record before and after a change, and the answer to it; no record where it could not be read."""

    changes: dict[str, object]
    exchange: Exchange
    before: dict[str, object]
    after: dict[str, object] | None


class Trial:
    """One run over one server."""

    def __init__(self, session: Session, *, rate_limit: bool = False) -> None:
        self.session = session
        self.rate_limit = rate_limit
        self._updates: dict[tuple[str, str], Update] = {}
        self._updated: dict[str, str] = {}  # the listing that a method changes
        self._lasting: str | None = None

    @cached_property
    def other(self) -> Credential:
        """The key of another account, which opens its own list. Raises NotChecked, Prevented."""
        if self.session.keys.other is None:
            raise NotChecked("give --other-key, a key of another account")
        by = Credential("--other-key", self.session.keys.other, self.session.own.header)
        shown = self.attempt("GET", by=by)
        if not shown.succeeded:
            raise Prevented(f"--other-key does not open its own list: {shown.told}")
        return by

    @property
    def expired(self) -> Credential:
        """The key of an account whose plan has expired. Raises NotChecked."""
        if self.session.keys.expired is None:
            raise NotChecked("give --expired-key, a key of an account whose Business plan has expired")
        return Credential("--expired-key", self.session.keys.expired, self.session.own.header)

    def fields(self, **more: object) -> dict[str, object]:
        """What creates a listing of this run."""
        return {"title": self.session.marker, "content": "Made by a conformance check.", **more}

    def attempt(self, method: str, path: str = "", body: Body | None = None, by: Credential | None = None) -> Exchange:
        """Ask for something that another check is about. Raises Prevented when no answer comes."""
        try:
            return self.session.ask(method, path, body, by)
        except Broken as missing:
            raise Prevented(str(missing)) from None

    def listing(self, **more: object) -> str:
        """The id of a new listing. Raises Prevented when none could be made."""
        created = self.attempt("POST", body=self.fields(**more))
        listing_id = id_of(created.members.get("id"))
        if not created.succeeded or listing_id is None:
            raise Prevented(f"no listing could be made: {created.told}")
        return listing_id

    @property
    def lasting(self) -> str:
        """The id of a listing that is there, for checks that leave it as it is. Raises Prevented as `listing` does."""
        if self._lasting is None or not self.session.has(self._lasting):
            self._lasting = self.listing()
        return self._lasting

    @property
    def listable(self) -> str:
        """The id of a new listing that the list should have. Raises NotChecked, Prevented."""
        listing_id = self.lasting
        if is_off(self.record(listing_id)):
            raise NotChecked("new listings are inactive here, and nothing says how to make one active")
        return listing_id

    def discard(self, created: Exchange) -> None:
        """Delete at once what should not have been created: a list that has it may be no JSON any more."""
        listing_id = id_of(created.members.get("id"))
        if created.succeeded and listing_id is not None:
            self.attempt("DELETE", f"/{listing_id}")

    def record(self, listing_id: str) -> dict[str, object]:
        """A listing as get-one shows it. Raises Prevented when it does not."""
        read = self.attempt("GET", f"/{listing_id}")
        record = _record_in(read)
        if record is None:
            raise Prevented(f"a listing could not be read: {read.told}")
        return record

    def listed(self, by: Credential | None = None) -> list[object]:
        """What the list shows. Raises Prevented when it is no list."""
        shown = self.attempt("GET", by=by)
        records = shown.members.get("listings")
        if not shown.succeeded or not isinstance(records, list):
            raise Prevented(f"the list could not be read: {shown.told}")
        return records

    @cached_property
    def full(self) -> tuple[str | None, Exchange]:
        """A listing created with every field that there is; no id when the server refused it."""
        created = self.session.ask("POST", body=self.fields(**SHOWN, **PLACE))
        return (id_of(created.members.get("id")) if created.succeeded else None), created

    @cached_property
    def minimal(self) -> Exchange:
        """The answer to a create with title and content alone."""
        return self.session.ask("POST", body=self.fields())

    @cached_property
    def samples(self) -> list[Sample]:
        """The records of a full and a minimal listing, as get-one and as the list show them. Raises Prevented."""
        found: list[Sample] = []
        sent = {identifier: fields for identifier, fields in self._sent() if identifier is not None}
        for listing_id, fields in sent.items():
            record = _record_in(self.attempt("GET", f"/{listing_id}"))
            if record is not None:
                found.append(Sample(f"GET of listing {listing_id}", fields, record))
        shown = self.attempt("GET").members.get("listings")
        for listed in shown if isinstance(shown, list) else []:
            listing_id = id_of(listed.get("id")) or "" if isinstance(listed, dict) else ""
            if listing_id in sent:
                found.append(Sample(f"the list's record {listing_id}", sent[listing_id], listed))
        return found

    def _sent(self) -> list[tuple[str | None, dict[str, object]]]:
        try:
            minimal = id_of(self.minimal.members.get("id"))
            return [(minimal, self.fields()), (self.full[0], self.fields(**SHOWN, **PLACE))]
        except Broken as missing:
            raise Prevented(str(missing)) from None

    @cached_property
    def keyless(self) -> list[Exchange]:
        """Every endpoint asked without a key."""
        return self.each_endpoint(self.session.nobody)

    @cached_property
    def unknown_key(self) -> list[Exchange]:
        """Every endpoint asked with a key that was never given out; as a bearer token, the list and create."""
        bearer = self.session.invalid._replace(header="Authorization", name="an invalid bearer token")
        return [
            *self.each_endpoint(self.session.invalid),
            self.session.ask("GET", by=bearer),
            self.session.ask("POST", body=self.fields(), by=bearer),
        ]

    @cached_property
    def strangers(self) -> tuple[list[Exchange], dict[str, object], dict[str, object]]:
        """Another account's reading, changing and deleting of a listing, and its record before and after."""
        other = self.other
        listing_id = self.lasting
        before = self.record(listing_id)
        asked = self.each_method(listing_id, other)
        after = self.attempt("GET", f"/{listing_id}")
        return asked, before, _record_in(after) or {}

    def each_endpoint(self, by: Credential) -> list[Exchange]:
        """Every endpoint once, those of one listing with one of --key, if it can be made."""
        asked = [self.session.ask("GET", by=by), self.session.ask("POST", body=self.fields(), by=by)]
        try:
            listing_id = self.lasting
        except Prevented:
            return asked
        return [*asked, *self.each_method(listing_id, by)]

    def each_method(self, listing_id: str, by: Credential | None = None) -> list[Exchange]:
        """Read, change twice and delete a listing; deleting comes last, so that each can succeed."""
        return [
            self.session.ask("GET", f"/{listing_id}", by=by),
            self.session.ask("PUT", f"/{listing_id}", {"price": 11}, by=by),
            self.session.ask("PATCH", f"/{listing_id}", {"price": 12}, by=by),
            self.session.ask("DELETE", f"/{listing_id}", by=by),
        ]

    def partial_update(self, method: str) -> Update:
        """A listing of which PUT or PATCH changes the price alone."""
        return self._update(method, {"price": 75.25})

    def full_update(self, method: str) -> Update:
        """A listing of which PUT or PATCH changes every field that the record shows."""
        return self._update(method, {"title": f"{self.session.marker}, changed", **NEW_VALUES})

    def pause(self, method: str) -> Update:
        """A listing that PUT or PATCH makes inactive, and changes in another field too."""
        return self._update(method, {"is_active": False, "price": 99.75})

    def _update(self, method: str, changes: dict[str, object]) -> Update:
        """One listing takes all changes of a method, each of them once; the partial one has to be the first."""
        key = (method, " ".join(changes))
        if key not in self._updates:
            if method not in self._updated:
                self._updated[method] = self.listing(**SHOWN)
            path = f"/{self._updated[method]}"
            before = self.record(self._updated[method])
            exchange = self.session.ask(method, path, changes)
            after = self.attempt("GET", path)
            self._updates[key] = Update(changes, exchange, before, _record_in(after))
        return self._updates[key]


def _record_in(read: Exchange) -> dict[str, object] | None:
    return read.members if read.succeeded and "id" in read.members else None


def is_off(record: dict[str, object]) -> bool:
    """Whether a record says that the listing is inactive; a 0 in place of false is another check's finding."""
    return record.get("is_active") == 0
