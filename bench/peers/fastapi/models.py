"""The tables."""

from datetime import UTC, datetime

from database import Base
from sqlalchemy import JSON, ForeignKey, Index, Numeric, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship


def utc_now() -> datetime:
    """Return the time in UTC without microseconds."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


class Account(Base):
    """A seller."""

    __tablename__ = "accounts"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    email: Mapped[str] = mapped_column(String(255), unique=True)
    plan_expires_at: Mapped[datetime | None]


class ApiKey(Base):
    """A key of a seller; only its hash is stored."""

    __tablename__ = "api_keys"

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    key_hash: Mapped[str] = mapped_column(String(64), unique=True)
    revoked_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship()


class Listing(Base):
    """A listing."""

    __tablename__ = "listings"
    __table_args__ = (Index("ix_listings_account_id_is_active", "account_id", "is_active", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    title: Mapped[str] = mapped_column(String(255))
    content: Mapped[str] = mapped_column(Text)
    type: Mapped[str] = mapped_column(String(10))
    category: Mapped[str] = mapped_column(String(100), default="")
    images: Mapped[list[str]] = mapped_column(JSON, default=list)
    price: Mapped[float] = mapped_column(Numeric(11, 2, asdecimal=False), default=0)
    price_type: Mapped[str] = mapped_column(String(10))
    location: Mapped[str] = mapped_column(String(255), default="")
    region: Mapped[str] = mapped_column(String(100), default="")
    district: Mapped[str] = mapped_column(String(100), default="")
    latitude: Mapped[float | None]
    longitude: Mapped[float | None]
    is_active: Mapped[bool] = mapped_column(default=True)
    view_count: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)
    deleted_at: Mapped[datetime | None]
