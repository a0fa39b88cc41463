"""The records that the client returns. All are frozen; unknown fields of later versions are ignored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, Self, TypedDict

ListingType = Literal["product", "service", "rental", "job"]
PriceType = Literal["fixed", "negotiable", "per_hour", "per_night"]
Status = Literal["active", "inactive", "deleted", "all"]

_TIMES = {"created_at", "updated_at", "deleted_at", "time", "since", "until", "expires_at", "plan_expires_at"}


class ListingFields(TypedDict, total=False):
    """The fields of a listing that a seller sets. A create needs `title` and `content`."""

    title: str
    content: str
    type: ListingType
    category: str
    images: Sequence[str]
    price: Decimal | float
    price_type: PriceType
    location: str
    region: str
    district: str
    latitude: float | None
    longitude: float | None
    is_active: bool
    external_id: str | None


FIELD_NAMES = tuple(ListingFields.__annotations__)


class Filters(TypedDict, total=False):
    """The filters of a list. The default is all active listings."""

    status: Status
    type: ListingType
    category: str
    region: str
    q: str
    price_min: Decimal | float
    price_max: Decimal | float
    external_id: Sequence[str] | str
    ids: Sequence[int]
    updated_since: datetime
    sort: str


def convert(name: str, value: Any) -> Any:  # noqa: ANN401 - any field of a response
    """Return the Python value of a field in a response, whose numbers with a fraction are Decimal."""
    if value is None:
        return None
    if name == "price":
        return Decimal(value).quantize(Decimal("0.01"))
    if name in _TIMES:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    if isinstance(value, list | tuple):
        return tuple(_RECORDS[name].from_json(one) for one in value) if name in _RECORDS else tuple(value)
    if isinstance(value, dict) and name in {"before", "after", "actor"}:
        return Actor.from_json(value) if name == "actor" else {each: convert(each, one) for each, one in value.items()}
    return float(value) if isinstance(value, Decimal) else value


class Record:
    """The base of the records."""

    __slots__ = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the record of a decoded JSON object."""
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # each subclass is a dataclass
        return cls(**{name: convert(name, value) for name, value in data.items() if name in known})


@dataclass(frozen=True, slots=True)
class Listing(Record):
    """A listing as it was read. `etag` is the version that `update` and `delete` compare."""

    id: int
    title: str
    content: str
    type: ListingType
    category: str
    images: tuple[str, ...]
    price: Decimal
    price_type: PriceType
    location: str
    region: str
    is_active: bool
    view_count: int
    created_at: datetime
    updated_at: datetime
    district: str = ""
    latitude: float | None = None
    longitude: float | None = None
    deleted_at: datetime | None = None
    external_id: str | None = None
    etag: str = ""


@dataclass(frozen=True, slots=True)
class BatchResult(Record):
    """The outcome of one operation. `code` and `message` are those of its error if `ok` is false."""

    status: int
    code: str = ""
    op: str = ""  # of a put: create or update
    id: int | None = None  # after a create or a put
    etag: str = ""
    message: str = ""
    before: Mapping[str, Any] | None = None  # only in a dry run
    after: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether the operation was applied, or would be."""
        return not self.code

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the record of a result, whose body becomes part of it."""
        body = data["body"]
        message = {"message": body.get("error") or body.get("message", "")}
        number = {"id": body["id"]} if "id" in body else {}
        return super(BatchResult, cls).from_json({**data, **message, **number})


@dataclass(frozen=True, slots=True)
class Actor(Record):
    """Who wrote a change set: a key, the signed-in owner (member), the operator or an import."""

    type: str
    name: str = ""
    hint: str = ""
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Change(Record):
    """The change of one listing. `before` is None if it was created."""

    id: int
    external_id: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChangeSet(Record):
    """The changes of one write. Ids ascend."""

    id: int
    time: datetime
    actor: Actor
    kind: str
    changes: tuple[Change, ...]
    group: str = ""
    revert: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeGroup(Record):
    """An import, a bulk action, a named group or a revert. `undo` is the body that `revert` takes."""

    id: int
    kind: str
    group: str | None
    actor: Actor
    since: datetime
    until: datetime
    change_sets: int
    changes: int
    undo: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RevertConflict(Record):
    """Fields of a listing that a revert left as they are, and why."""

    id: int
    external_id: str | None
    reason: str
    fields: Sequence[str]
    change: int | None = None
    holder: int | None = None


@dataclass(frozen=True, slots=True)
class Revert(Record):
    """A revert, or the plan of one (`status` is planned). `changes` are those of a plan."""

    id: int | None
    status: str
    progress: float
    reverted: int
    unchanged: int
    conflict_count: int
    conflicts: tuple[RevertConflict, ...] = ()
    changes: tuple[Change, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the record of a revert with the conflicts of this page."""
        counts = data["counts"]
        return super(Revert, cls).from_json({**counts, **data, "conflict_count": counts["conflicts"]})


@dataclass(frozen=True, slots=True)
class Image(Record):
    """An uploaded picture."""

    url: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class KeyInfo(Record):
    """The key that the client sends. `listings` has numbers by state; None means unlimited."""

    id: int
    account_id: int
    name: str
    access: str
    mode: str
    expires_at: datetime | None
    plan_expires_at: datetime | None
    listings: Mapping[str, int]
    limits: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class RateLimit(Record):
    """The rate limit of the key; `reset` is a Unix time. All are None if the service has no limit."""

    limit: int | None
    window: int | None
    remaining: int | None
    reset: int | None


_RECORDS: Mapping[str, type[Record]] = {"changes": Change, "conflicts": RevertConflict}
