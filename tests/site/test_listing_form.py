"""The form of a listing: submitted values become the body of a create or update request."""

import msgspec
import pytest
from starlette.datastructures import FormData

from listings.domain import fields
from listings.domain.faults import InvalidFieldsError
from listings.domain.fields import Field
from listings.domain.rules import Choice
from listings.site import pages
from listings.site.console.listings import form as listing_form
from listings.site.context import Brand
from tests.examples import build_listing

STORED = build_listing(
    version=3,
    title="Road\nbike",
    content="Alloy.\r\nTwo wheels.\rFast.",
    category="Bicycles",
    images='["https://x.example/1.jpg","2.jpg"]',
    price_cents=123_450,
    price_type="negotiable",
    location="\tCuba Street ",
    region="Wellington",
    latitude=-41.2911,
    longitude=0.0,
)


def submit(**changed: str) -> dict[str, object]:
    """Return the body of an update from the form as a browser submits it, with some fields edited."""
    values = listing_form.form_values(STORED)
    multiline = {"content", "images"}
    submitted = {
        name: text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n" if name in multiline else "")
        for name, text in values.items()
    }
    form = FormData({name: text for name, text in (submitted | changed).items() if text or name != "is_active"})
    return listing_form.changed_body(listing_form.read(form), STORED)


def test_an_unchanged_form_changes_nothing() -> None:
    assert submit() == {}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("title", "Road bike", "Road bike"),
        ("content", "One.\r\n\r\nTwo.", "One.\n\nTwo."),
        ("price", "1,999", 1999.0),
        ("price", "$ 35.50", 35.5),
        ("price", "1,234,567.5", 1234567.5),
        ("price", "12 500", 12500.0),
        ("price", "4.5e3", 4500.0),
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
def test_the_body_contains_only_edited_fields(name: str, text: str, value: object) -> None:
    assert submit(**{name: text}) == {name: value}


def test_field_errors_use_the_forms_labels() -> None:
    form = FormData(
        {
            "title": "",
            "content": "x",
            "price": "cheap",
            "latitude": "400",
            "type": "car",
            "images": "https://x.example/1\nb\nhttps://x.example/3\n\nhttps://me@x.example/4",
        }
    )
    sent = listing_form.read(form)
    with pytest.raises(InvalidFieldsError) as rejected:
        fields.parse_new_listing(listing_form.new_body(sent), strict=True)
    errors = listing_form.field_errors(rejected.value, sent)
    assert errors["price"] == "Enter the price as a number, such as 450. For “ono”, choose Negotiable"
    assert errors["type"] == "Choose one of “For sale”, “Service”, “Rental”, “Job” as type"
    assert errors["latitude"] == "Latitude must be from -90 to 90, got 400"
    assert errors["title"] == "Enter a title"
    assert errors["images"].split(". ") == [
        "Image 2 must be the whole address of a picture, beginning with https:// or http://",
        'Image 4 must have a host and no user name or password, got "https://me@x.example/4"',
    ]
    assert set(errors) == {"title", "price", "latitude", "type", "price_type", "images"}
    assert rejected.value.message == "; ".join(rejected.value.errors.values())


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("1.jpg", "must be the whole address of a picture"),
        ("ftp://x.example/1.jpg", "must be the whole address of a picture"),
        ("https://x.example/a b.jpg", "must be a URL without spaces, control characters or backslashes, got"),
        (f"https://x.example/{'x' * 2100}", "must be a URL of 1 to 2048 characters, got"),
        ("https://me@x.example/1.jpg", "must have a host and no user name or password, got"),
    ],
)
def test_an_error_of_an_image_says_which_rule_it_breaks(url: str, message: str) -> None:
    sent = {**listing_form.EMPTY, "images": url}
    with pytest.raises(InvalidFieldsError) as rejected:
        fields.parse_new_listing(listing_form.new_body(sent), strict=True)
    assert listing_form.field_errors(rejected.value, sent)["images"].startswith(f"Image 1 {message}")


def test_a_form_with_title_and_description_is_valid() -> None:
    body = listing_form.new_body({**listing_form.EMPTY, "title": "Lamp", "content": "A lamp."})
    new, _ = fields.parse_new_listing(body, strict=True)
    assert new == msgspec.structs.replace(new, title="Lamp", content="A lamp.", is_active=True, price_cents=0)


def test_a_missing_field_is_reported_by_its_label() -> None:
    with pytest.raises(InvalidFieldsError) as rejected:
        fields.parse_new_listing({"title": "Lamp"}, strict=True)
    assert listing_form.field_errors(rejected.value, listing_form.EMPTY) == {"content": "Enter a description"}


def test_differences_use_the_forms_labels() -> None:
    values = {**listing_form.form_values(STORED), "title": "Roadbike", "price": "5"}
    values |= {"type": "rental", "price_type": "per_night", "is_active": ""}
    assert listing_form.differences(values | {"content": "Alloy.\nTwo wheels.\nFast."}, STORED) == [
        ("Type", "For sale", "Rental"),
        ("Price", "1234.50", "5"),
        ("Price type", "Negotiable", "Per night"),
        ("On the market", "yes", "no"),
    ]


_SELECT = '{% from "console/parts/listing_fields.html" import select with context %}{{ select("condition") }}'


@pytest.mark.parametrize(("is_optional", "first"), [(True, '"" selected>'), (False, '"new">')])
def test_an_optional_choice_can_be_left_open(is_optional: bool, first: str) -> None:  # noqa: FBT001 - a parameter
    rule = Choice("Condition", ("new", "used"), is_optional)
    field = Field("condition", rule, "Condition", "", "new", {"new": "New", "used": "Used"})
    template = pages.environment("", Brand()).from_string(_SELECT)
    html = template.render(fields={"condition": field}, values={"condition": ""}, errors={}, contexts=[])
    assert html.partition("<option value=")[2].startswith(first)
