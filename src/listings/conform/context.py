"""The shared state of a run: listings created for the checks, and responses that several checks use, requested once.

If a request fails here, the check that is about it reports the failure, and all others are blocked.
"""

from functools import cached_property
from typing import NamedTuple

from listings.conform.session import Body, Credential, Exchange, Session, parse_id
from listings.conform.verdicts import Blocked, Failed, Skipped

# The fields that a record has and a client can set, with values that no server has a reason to reject.
RECORD_FIELDS: dict[str, object] = {
    "content": "Bicycle repairs, at your home if you like.",
    "type": "service",
    "category": "Repairs",
    "images": ["https://images.example/1.jpg", "https://images.example/2.jpg"],
    "price": 1250.5,
    "price_type": "negotiable",
    "location": "12 Cuba Street",
    "region": "Wellington",
}
LOCATION_FIELDS: dict[str, object] = {"district": "Te Aro", "latitude": -41.2924, "longitude": 174.7787}
ALL_FIELDS = RECORD_FIELDS | LOCATION_FIELDS
VOLATILE_FIELDS = {"updated_at", "view_count"}  # the service decides when these change
UNKNOWN_ID = "2147480573"  # near the largest 32-bit integer, far from ids that are counted from 1


class Sample(NamedTuple):
    """A record from a response, a name for that response, and the fields with which the listing was created."""

    source: str
    sent: dict[str, object]
    record: dict[str, object]


class Update(NamedTuple):
    """An update with its response and the records before and after it; `after` is None if it could not be read."""

    changes: dict[str, object]
    exchange: Exchange
    before: dict[str, object]
    after: dict[str, object] | None


class Context:
    """One run against one server."""

    def __init__(self, session: Session, *, rate_limit: bool = False) -> None:
        self.session = session
        self.rate_limit = rate_limit
        self._updates: dict[tuple[str, str], Update] = {}
        self._updated: dict[str, str] = {}  # by method, the id of the listing that it changes
        self._shared_listing: str | None = None

    @cached_property
    def other(self) -> Credential:
        """The other account's key, which can read its own list. Raises Skipped, Blocked."""
        if self.session.keys.other is None:
            raise Skipped("give --other-key, a key of another account")
        by = Credential("--other-key", self.session.keys.other, self.session.own.header)
        response = self.send_setup("GET", by=by)
        if not response.succeeded:
            raise Blocked(f"--other-key can't read its own list: {response.summary}")
        return by

    @property
    def expired(self) -> Credential:
        """The key of an account whose plan has expired. Raises Skipped."""
        if self.session.keys.expired is None:
            raise Skipped("give --expired-key, a key of an account whose Business plan has expired")
        return Credential("--expired-key", self.session.keys.expired, self.session.own.header)

    def build_fields(self, **more: object) -> dict[str, object]:
        """Return the body of a create; the title marks the listing as this run's."""
        return {"title": self.session.title_prefix, "content": "Created by a conformance check.", **more}

    def send_setup(
        self, method: str, path: str = "", body: Body | None = None, by: Credential | None = None
    ) -> Exchange:
        """Send a request that another check is about. Raises Blocked if there is no response."""
        try:
            return self.session.send(method, path, body, by)
        except Failed as error:
            raise Blocked(str(error)) from None

    def create_listing(self, **more: object) -> str:
        """Create a listing and return its id. Raises Blocked."""
        created = self.send_setup("POST", body=self.build_fields(**more))
        if created.created_id is None:
            raise Blocked(f"no listing could be created: {created.summary}")
        return created.created_id

    @property
    def shared_listing(self) -> str:
        """The id of a listing for checks that neither change nor delete it. Raises Blocked."""
        if self._shared_listing is None or not self.session.has(self._shared_listing):
            self._shared_listing = self.create_listing()
        return self._shared_listing

    @property
    def active_listing(self) -> str:
        """The id of a listing that the list should contain. Raises Skipped, Blocked."""
        listing_id = self.shared_listing
        if is_inactive(self.get_record(listing_id)):
            raise Skipped("new listings are inactive on this server, and the specification has no way to activate one")
        return listing_id

    def delete_unwanted(self, created: Exchange) -> None:
        """Delete a listing that should have been rejected: it might make the list invalid JSON."""
        if created.created_id is not None:
            self.send_setup("DELETE", f"/{created.created_id}")

    def get_record(self, listing_id: str) -> dict[str, object]:
        """Return the record of a listing from get-one. Raises Blocked."""
        response = self.send_setup("GET", f"/{listing_id}")
        record = _parse_record(response)
        if record is None:
            raise Blocked(f"a listing could not be read: {response.summary}")
        return record

    def get_list(self, by: Credential | None = None) -> list[object]:
        """Return the records of the list. Raises Blocked."""
        response = self.send_setup("GET", by=by)
        records = response.members.get("listings")
        if not response.succeeded or not isinstance(records, list):
            raise Blocked(f"the list could not be read: {response.summary}")
        return records

    @cached_property
    def full(self) -> Exchange:
        """The response to a create with every field."""
        return self.session.send("POST", body=self.build_fields(**ALL_FIELDS))

    @cached_property
    def minimal(self) -> Exchange:
        """The response to a create with only title and content."""
        return self.session.send("POST", body=self.build_fields())

    @cached_property
    def samples(self) -> list[Sample]:
        """The records of the full and the minimal listing, from get-one and from the list. Raises Blocked."""
        try:
            sent = {self.minimal.id: self.build_fields(), self.full.created_id: self.build_fields(**ALL_FIELDS)}
        except Failed as error:
            raise Blocked(str(error)) from None
        sent.pop(None, None)  # a rejected create has no id
        found: list[Sample] = []
        for listing_id, fields in sent.items():
            record = _parse_record(self.send_setup("GET", f"/{listing_id}"))
            if record is not None:
                found.append(Sample(f"GET of listing {listing_id}", fields, record))
        records = self.send_setup("GET").members.get("listings")
        for listed in records if isinstance(records, list) else []:
            listing_id = parse_id(listed.get("id")) if isinstance(listed, dict) else None
            if listing_id in sent:
                found.append(Sample(f"the list's record {listing_id}", sent[listing_id], listed))
        return found

    @cached_property
    def without_key(self) -> list[Exchange]:
        """A request to every endpoint without a key."""
        return self.call_each_endpoint(self.session.nobody)

    @cached_property
    def with_unknown_key(self) -> list[Exchange]:
        """A request to every endpoint with an unknown key, and two with an unknown bearer token."""
        bearer = self.session.invalid._replace(header="Authorization", name="an invalid bearer token")
        return [
            *self.call_each_endpoint(self.session.invalid),
            self.session.send("GET", by=bearer),
            self.session.send("POST", body=self.build_fields(), by=bearer),
        ]

    @cached_property
    def foreign_access(self) -> tuple[list[Exchange], dict[str, object], dict[str, object]]:
        """The other account's requests for a listing that it does not own, and the record before and after them."""
        other = self.other
        listing_id = self.shared_listing
        before = self.get_record(listing_id)
        exchanges = self.call_each_method(listing_id, other)
        after = self.send_setup("GET", f"/{listing_id}")
        return exchanges, before, _parse_record(after) or {}

    def call_each_endpoint(self, by: Credential) -> list[Exchange]:
        """Call every endpoint, those with an id for a listing of --key, if one can be created."""
        exchanges = [self.session.send("GET", by=by), self.session.send("POST", body=self.build_fields(), by=by)]
        try:
            listing_id = self.shared_listing
        except Blocked:
            return exchanges
        return [*exchanges, *self.call_each_method(listing_id, by)]

    def call_each_method(self, listing_id: str, by: Credential | None = None) -> list[Exchange]:
        """Read, update (PUT and PATCH) and delete a listing; the delete is last, so that each can succeed."""
        return [
            self.session.send("GET", f"/{listing_id}", by=by),
            self.session.send("PUT", f"/{listing_id}", {"price": 11}, by=by),
            self.session.send("PATCH", f"/{listing_id}", {"price": 12}, by=by),
            self.session.send("DELETE", f"/{listing_id}", by=by),
        ]

    def update(self, method: str, changes: dict[str, object]) -> Update:
        """Send each update once. All updates of a method use one listing, so the check of a partial one comes first."""
        key = (method, " ".join(changes))
        if key not in self._updates:
            if method not in self._updated:
                self._updated[method] = self.create_listing(**RECORD_FIELDS)
            path = f"/{self._updated[method]}"
            before = self.get_record(self._updated[method])
            exchange = self.session.send(method, path, changes)
            after = self.send_setup("GET", path)
            self._updates[key] = Update(changes, exchange, before, _parse_record(after))
        return self._updates[key]


def _parse_record(response: Exchange) -> dict[str, object] | None:
    return response.members if response.succeeded and "id" in response.members else None


def is_inactive(record: dict[str, object]) -> bool:
    """Return whether a record is inactive. Accepts 0 for false, since another check reports wrong types."""
    return record.get("is_active") == 0
