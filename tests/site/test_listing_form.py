"""A listing as a form: what is sent back unchanged changes nothing, and what was changed is a body of the API."""

import msgspec
import pytest
from starlette.datastructures import FormData

from listings.domain import fields
from listings.domain.model import Listing
from listings.site.console import listing_form

STORED = Listing(
    id=1025,
    account_id=1,
    version=3,
    title="Road\nbike",
    content="Alloy.\r\nTwo wheels.\rFast.",
    type="product",
    category="Bicycles",
    images='["https://x.example/1.jpg","2.jpg"]',
    price_cents=123_450,
    price_type="negotiable",
    location="\tCuba Street ",
    region="Wellington",
    district="",
    latitude=-41.2911,
    longitude=0.0,
    is_active=True,
    view_count=7,
    created_at="2026-09-21 10:00:00",
    updated_at="2026-09-21 10:00:00",
    deleted_at=None,
)


def sent(**changed: str) -> dict[str, object]:
    """The body that a browser makes of the form, with some fields written anew."""
    shown = listing_form.texts_of(STORED)
    lines = {"content", "images"}
    as_sent = {
        name: text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n" if name in lines else "")
        for name, text in shown.items()
    }
    form = FormData({name: text for name, text in (as_sent | changed).items() if text or name != "is_active"})
    return listing_form.changed_body(listing_form.read(form), STORED)


def test_what_is_sent_back_as_it_was_shown_changes_nothing() -> None:
    assert sent() == {}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("title", "Road bike", "Road bike"),
        ("content", "One.\r\n\r\nTwo.", "One.\n\nTwo."),
        ("price", "1,999", 1999.0),
        ("price", "$ 35.50", 35.5),
        ("price", "1,234,567.5", 1234567.5),
        ("price", "12 500", 12500.0),
        ("price", "12,50", "12,50"),
        ("price", "1,2345", "1,2345"),
        ("price", "1234,567", "1234,567"),
        ("price", "1.5,000", "1.5,000"),
        ("price", "", None),
        ("price", "cheap", "cheap"),
        ("price", "-1", -1.0),
        (
            "images",
            "https://x.example/2.jpg\r\n\r\n https://x.example/3.jpg ",
            ["https://x.example/2.jpg", "https://x.example/3.jpg"],
        ),
        ("images", "https://x.example/a b.jpg", ["https://x.example/a b.jpg"]),
        ("images", "", []),
        ("latitude", "", None),
        ("latitude", "+12.5", 12.5),
        ("latitude", "north", "north"),
        ("is_active", "", False),
        ("category", "", ""),
    ],
)
def test_only_what_was_written_anew_is_in_the_body(name: str, text: str, value: object) -> None:
    assert sent(**{name: text}) == {name: value}


def test_faults_stand_at_their_fields_by_the_forms_own_names() -> None:
    form = FormData(
        {
            "title": "",
            "content": "x",
            "price": "cheap",
            "latitude": "400",
            "type": "car",
            "images": "https://x.example/1\nb",
        }
    )
    with pytest.raises(fields.InvalidFieldsError) as refused:
        fields.parse_new_listing(listing_form.new_body(listing_form.read(form)), strict=True)
    errors = listing_form.faults_of(refused.value)
    assert errors["price"] == 'Price must be a number, got "cheap"'
    assert errors["title"] == "Title is required and must not be blank"
    assert errors["images"].startswith("Picture 2 must be an absolute http or https URL")
    assert set(errors) == {"title", "price", "latitude", "type", "price_type", "images"}
    assert refused.value.message == "; ".join(refused.value.errors.values())


def test_an_empty_form_is_a_listing_once_it_has_a_title_and_a_description() -> None:
    body = listing_form.new_body({**listing_form.EMPTY, "title": "Lamp", "content": "A lamp."})
    new, _ = fields.parse_new_listing(body, strict=True)
    assert new == msgspec.structs.replace(new, title="Lamp", content="A lamp.", is_active=True, price_cents=0)


def test_what_is_missing_is_told_by_the_forms_own_names() -> None:
    with pytest.raises(fields.InvalidFieldsError) as refused:
        fields.parse_new_listing({"title": "Lamp"}, strict=True)
    assert listing_form.faults_of(refused.value) == {"content": "Description is required"}


def test_two_people_see_where_they_differ_in_the_forms_words() -> None:
    texts = {**listing_form.texts_of(STORED), "title": "Roadbike", "price": "5"}
    texts |= {"type": "rental", "price_type": "per_night", "is_active": ""}
    assert listing_form.differences(texts | {"content": "Alloy.\nTwo wheels.\nFast."}, STORED) == [
        ("Type", "For sale", "Rental"),
        ("Price", "1234.50", "5"),
        ("How it is meant", "Negotiable", "Per night"),
        ("On the market", "yes", "no"),
    ]
