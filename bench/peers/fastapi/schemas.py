"""Schemas of requests and responses."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

Timestamp = Annotated[datetime, PlainSerializer(lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}", return_type=str)]


class ListingCreate(BaseModel):
    """A listing in a request."""

    title: str = Field(min_length=1, max_length=255)
    content: str = Field(min_length=1, max_length=100_000)
    type: Literal["product", "service", "rental", "job"] = "product"
    category: str = Field("", max_length=100)
    images: list[Annotated[str, Field(max_length=2048)]] = Field([], max_length=50)
    price: float = Field(0, ge=0, le=999_999_999.99)
    price_type: Literal["fixed", "negotiable", "per_hour", "per_night"] = "fixed"
    location: str = Field("", max_length=255)
    region: str = Field("", max_length=100)
    district: str = Field("", max_length=100)
    latitude: float | None = Field(None, ge=-90, le=90)
    longitude: float | None = Field(None, ge=-180, le=180)
    is_active: bool = True


class ListingOut(BaseModel):
    """A listing in a response."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    title: str
    content: str
    type: str
    category: str
    images: list[str]
    price: float
    price_type: str
    location: str
    region: str
    is_active: bool
    view_count: int
    created_at: Timestamp
    updated_at: Timestamp


class ListingsOut(BaseModel):
    """The response to a list."""

    listings: list[ListingOut]


class Created(BaseModel):
    """The response to a create."""

    id: int
    message: str
