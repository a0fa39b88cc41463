"""Every rule and limit of a listing's fields, on both sides of each limit (decisions G2-G6, G32)."""

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from listings.domain import fields
from listings.domain.errors import Problem
from listings.domain.listing_json import Record
from listings.domain.model import MAX_ID, ImportedListing, Listing, NewListing
from listings.domain.rules import Choice

REQUIRED = {"title": "Bicycle", "content": "Two wheels."}
MAX_LENGTHS = {"title": 255, "content": 100_000, "category": 100, "location": 255, "region": 100, "district": 100}
OPTIONAL_TEXTS = ["category", "location", "region", "district"]
NUMBERS = ["price", "latitude", "longitude"]
DEFAULTS: Mapping[str, object] = {
    "category": "",
    "images": "[]",
    "price_cents": 0,
    "price_type": "fixed",
    "location": "",
    "region": "",
    "district": "",
    "latitude": None,
    "longitude": None,
}
MAX_CENTS = 99_999_999_999


def store(name: str, value: object, *, strict: bool = False) -> object:
    """Return what both a create and an update store for one field."""
    attribute = fields.FIELDS[name].attribute
    new, _ = fields.parse_new_listing({**REQUIRED, name: value}, strict=strict)
    change, _ = fields.parse_listing_change({name: value}, strict=strict)
    assert change == {attribute: getattr(new, attribute)}
    return getattr(new, attribute)


def reject(name: str, value: object, *, strict: bool = False) -> str:
    """Return the error that both a create and an update report for one invalid field."""
    with pytest.raises(Problem) as on_create:
        fields.parse_new_listing({**REQUIRED, name: value}, strict=strict)
    with pytest.raises(Problem) as on_update:
        fields.parse_listing_change({name: value}, strict=strict)
    assert on_create.value.code == on_update.value.code == "invalid_request"
    assert on_create.value.message == on_update.value.message
    return on_update.value.message


def test_the_fields_of_the_specification_come_first_in_its_order() -> None:
    assert list(fields.FIELDS)[:14] == [
        "title",
        "content",
        "type",
        "category",
        "images",
        "price",
        "price_type",
        "location",
        "region",
        "district",
        "latitude",
        "longitude",
        "is_active",
        "external_id",
    ]


def test_every_attribute_of_a_new_listing_is_a_field() -> None:
    assert sorted(field.attribute for field in fields.FIELDS.values()) == sorted(NewListing.__struct_fields__)


def test_a_stored_listing_has_the_attributes_of_a_new_one_in_their_order() -> None:
    own = ("id", "account_id", "version")
    assert Listing.__struct_fields__ == (*own, *NewListing.__struct_fields__, *ImportedListing.__struct_fields__[1:])


@pytest.mark.parametrize("name", fields.FIELDS)
def test_every_field_can_be_shown(name: str) -> None:
    assert name in Record.__struct_fields__


@pytest.mark.parametrize("name", fields.FIELDS)
def test_a_choice_has_its_options_and_may_be_none_if_that_is_its_default(name: str) -> None:
    field = fields.FIELDS[name]
    if isinstance(field.rule, Choice):
        assert tuple(field.options) == field.rule.allowed
        assert field.rule.is_optional is (fields.get_default(name) is None)


@pytest.mark.parametrize("name", fields.FIELDS)
def test_a_form_and_a_file_read_the_values_that_they_show(name: str) -> None:
    rule = fields.FIELDS[name].rule
    for value in (rule(fields.FIELDS[name].example), fields.get_default(name) or rule(fields.FIELDS[name].example)):
        assert rule(rule.from_text(rule.to_text(value))) == value
        assert rule(rule.from_cell(rule.to_cell(value))) == value


def test_only_an_optional_choice_may_be_none_in_a_form() -> None:
    assert Choice("Condition", ("new", "used"), is_optional=True).from_text("") is None
    assert Choice("Condition", ("new", "used")).from_text("") == ""


@pytest.mark.decision("G19")
def test_an_external_id_has_1_to_255_characters_without_control_characters() -> None:
    for text in ("0", " ", "x" * 255, "🚲" * 255, "\u2028\u00a0\ufeff", "sku/17,a"):
        assert fields.parse_listing_change({"external_id": text}) == ({"external_id": text}, [])
    assert reject("external_id", "") == "external_id must have 1 to 255 characters, got 0"
    assert reject("external_id", "x" * 256) == "external_id must have 1 to 255 characters, got 256"
    assert reject("external_id", 17) == "external_id must be a string, got a number"
    for code in (0, 9, 10, 0x1F, 0x7F, 0x85, 0x9F):
        assert "must not contain control characters" in reject("external_id", f"a{chr(code)}b")


def test_an_id_is_a_positive_integer_that_a_database_can_store() -> None:
    assert (fields.parse_id("1"), fields.parse_id(str(MAX_ID))) == (1, MAX_ID)
    for text in ("", "0", "-1", "+1", "01", "1.0", "a", "٣", " 1", "1\n", str(MAX_ID + 1), "1" * 20):
        assert fields.parse_id(text) is None


@pytest.mark.parametrize(("name", "max_length"), MAX_LENGTHS.items())
def test_text_may_have_its_maximum_length(name: str, max_length: int) -> None:
    assert store(name, "x" * max_length) == "x" * max_length


@pytest.mark.decision("G2")
@pytest.mark.parametrize(("name", "max_length"), MAX_LENGTHS.items())
def test_text_one_character_too_long_is_rejected(name: str, max_length: int) -> None:
    assert (
        reject(name, "x" * (max_length + 1)) == f"{name} must be at most {max_length} characters, got {max_length + 1}"
    )


@pytest.mark.decision("G2")
@pytest.mark.parametrize(("name", "max_length"), MAX_LENGTHS.items())
@pytest.mark.parametrize("character", ["é", "中", "😀", "\u0301"])
def test_lengths_are_counted_in_code_points(name: str, max_length: int, character: str) -> None:
    assert store(name, character * max_length) == character * max_length
    assert f"got {max_length + 1}" in reject(name, character * (max_length + 1))


@pytest.mark.parametrize("name", ["title", "content"])
def test_a_required_text_may_have_one_character(name: str) -> None:
    assert store(name, "x") == "x"


@pytest.mark.parametrize("name", ["title", "content"])
@pytest.mark.parametrize("blank", ["", " ", "\t\r\n", "\u00a0\u3000\u2003", "\v\f", " " * 200])
def test_a_required_text_of_only_white_space_is_rejected(name: str, blank: str) -> None:
    assert reject(name, blank) == f"{name} is required and must not be blank"


@pytest.mark.parametrize("name", OPTIONAL_TEXTS)
@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_optional_text_may_be_blank(name: str, text: str) -> None:
    assert store(name, text) == text


@pytest.mark.parametrize("name", MAX_LENGTHS)
def test_u0000_anywhere_in_a_text_is_rejected(name: str) -> None:
    messages = {reject(name, text) for text in ("\0", "a\0", "\0a", "a\0b")}
    assert messages == {f"{name} must not contain the character U+0000"}


@pytest.mark.parametrize("name", MAX_LENGTHS)
def test_a_value_that_is_not_a_string_is_rejected(name: str) -> None:
    messages = [reject(name, value) for value in (5, 0.5, True, ["a"], {"a": "b"})]
    types = ("a number", "a number", "a boolean", "an array", "an object")
    assert messages == [f"{name} must be a string, got {json_type}" for json_type in types]


@pytest.mark.parametrize("name", MAX_LENGTHS)
@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=90))
@example(text="a\v\f\x01\x7f\x80\u2028\ufeff\uffffz")
@example(text="e\u0301 is not \u00e9")
def test_any_other_text_is_stored_exactly_as_sent(name: str, text: str) -> None:
    sent = f" x{text} "
    assert store(name, sent) == sent


@pytest.mark.parametrize("choice", ["product", "service", "rental", "job"])
def test_the_four_types_are_accepted(choice: str) -> None:
    assert store("type", choice) == choice


@pytest.mark.parametrize("choice", ["fixed", "negotiable", "per_hour", "per_night"])
def test_the_four_price_types_are_accepted(choice: str) -> None:
    assert store("price_type", choice) == choice


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("", '""'),
        ("Product", '"Product"'),
        (" product", '" product"'),
        ("fixed\n", '"fixed\\n"'),
        ("Žluť", '"Žluť"'),
        ("x" * 100, '"' + "x" * 36 + "..."),
        (1, "1"),
        (True, "true"),
        (["product"], "an array"),
        ({"a": 1}, "an object"),
        (10**39 - 1, "9" * 39),
        (10**39, "a number of 40 digits or more"),
        (10**400, "a number of 40 digits or more"),
        (-(10**400), "a number of 40 digits or more"),
        ("x" * 38, '"' + "x" * 38 + '"'),
        ("x" * 39, '"' + "x" * 36 + "..."),
    ],
)
def test_any_other_choice_is_rejected_with_the_allowed_ones(value: object, got: str) -> None:
    assert reject("type", value) == f"type must be one of product, service, rental, job, got {got}"
    assert reject("price_type", value) == f"price_type must be one of fixed, negotiable, per_hour, per_night, got {got}"


@pytest.mark.parametrize(("name", "choice"), [("type", "fixed"), ("price_type", "product")])
def test_a_choice_of_another_field_is_rejected(name: str, choice: str) -> None:
    assert f'got "{choice}"' in reject(name, choice)


@pytest.mark.parametrize("flag", [True, False])
def test_a_boolean_is_stored(*, flag: bool) -> None:
    assert store("is_active", flag) is flag


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (0, "0"),
        (1, "1"),
        (1.0, "1.0"),
        ("true", '"true": remove the quotes'),
        ("False", '"False"'),
        ("", '""'),
        ([], "an array"),
        ({}, "an object"),
    ],
)
def test_a_value_that_is_not_a_boolean_is_rejected(value: object, got: str) -> None:
    assert reject("is_active", value) == f"is_active must be true or false, got {got}"


@pytest.mark.decision("G4")
@pytest.mark.parametrize(
    ("price", "cents"),
    [
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (0.01, 1),
        (1, 100),
        (19.99, 1999),
        (0.1 + 0.2, 30),
        (1.1 + 2.2, 330),
        (4.35, 435),
        (1.15, 115),
        (0.000001, 0),
        (-0.000001, 0),
        (10.000000999, 1000),
        (999_999_999, 99_999_999_900),
        (999_999_999.98, MAX_CENTS - 1),
        (999_999_999.99, MAX_CENTS),
        (999_999_999.9900001, MAX_CENTS),
    ],
)
def test_a_price_is_stored_in_cents(price: float, cents: int) -> None:
    value = store("price", price)
    assert (value, type(value)) == (cents, int)


@settings(max_examples=1000)
@given(st.integers(0, MAX_CENTS))
@example(0)
@example(1)
@example(MAX_CENTS)
def test_every_price_survives_the_round_trip_through_json(cents: int) -> None:
    dollars = json.loads(json.dumps(cents / 100))
    assert store("price", dollars) == cents
    assert store("price", float(f"{cents // 100}.{cents % 100:02}")) == cents


@pytest.mark.decision("G4")
@given(st.integers(0, MAX_CENTS // 1000 * 1000), st.integers(1, 9))
def test_a_third_decimal_is_rejected(cents: int, third: int) -> None:
    price = float(f"{cents // 100}.{cents % 100:02}{third}")
    assert reject("price", price) == f"price must have at most two decimals, got {json.dumps(price)}"


@pytest.mark.parametrize("price", [0.001, 0.005, 0.009, 1.005, 9.999, 0.00001, 0.0000011, 10.000002, 999_999_999.985])
def test_a_fraction_of_a_cent_is_rejected(price: float) -> None:
    assert reject("price", price) == f"price must have at most two decimals, got {json.dumps(price)}"


@pytest.mark.parametrize(
    ("price", "got"),
    [
        (-0.01, "-0.01"),
        (-1, "-1"),
        (1_000_000_000, "1000000000"),
        (1_000_000_000.0, "1000000000.0"),
        (1e300, "1e+300"),
        (10**400, "a number of 40 digits or more"),
        (-(10**400), "a number of 40 digits or more"),
    ],
)
def test_a_price_out_of_range_is_rejected(price: float, got: str) -> None:
    assert reject("price", price) == f"price must be from 0 to 999999999.99, got {got}"


@pytest.mark.decision("G4")
@pytest.mark.parametrize(("name", "limit"), [("latitude", 90), ("longitude", 180)])
@pytest.mark.parametrize("sign", [1, -1])
def test_coordinates_may_have_their_limits(name: str, limit: int, sign: int) -> None:
    degrees = store(name, sign * limit)
    assert (degrees, type(degrees)) == (float(sign * limit), float)


@pytest.mark.parametrize(("name", "limit"), [("latitude", 90), ("longitude", 180)])
@pytest.mark.parametrize("excess", [0.000001, 1, 10**400])
@pytest.mark.parametrize("sign", [1, -1])
def test_coordinates_beyond_their_limits_are_rejected(name: str, limit: int, excess: float, sign: int) -> None:
    assert reject(name, sign * (limit + excess)).startswith(f"{name} must be from -{limit} to {limit}, got ")


@pytest.mark.parametrize("name", ["latitude", "longitude"])
@pytest.mark.parametrize("degrees", [-41.28664, 0.1, 5e-324, 89.99999999999999])
def test_coordinates_are_stored_to_the_last_digit(name: str, degrees: float) -> None:
    assert store(name, degrees) == degrees


@pytest.mark.parametrize("name", ["latitude", "longitude"])
def test_minus_zero_degrees_are_stored_as_zero(name: str) -> None:
    assert json.dumps(store(name, -0.0)) == "0.0"


@pytest.mark.parametrize("name", ["latitude", "longitude"])
def test_one_coordinate_may_be_given_without_the_other(name: str) -> None:
    new, _ = fields.parse_new_listing({**REQUIRED, name: 12.5})
    assert {new.latitude, new.longitude} == {12.5, None}


@pytest.mark.decision("G4")
@pytest.mark.parametrize("name", NUMBERS)
def test_a_value_that_is_not_a_number_is_rejected(name: str) -> None:
    values = [True, False, "5", "-0.1", "1,5", "$5", "", [5], {"amount": 5}]
    texts = ["true", "false", '"5": remove the quotes', '"-0.1": remove the quotes', '"1,5"', '"$5"', '""']
    expected = [f"{name} must be a number, got {got}" for got in (*texts, "an array", "an object")]
    assert [reject(name, value) for value in values] == expected


def test_a_listing_of_only_the_required_fields_has_the_defaults() -> None:
    assert fields.parse_new_listing(REQUIRED) == (
        NewListing(
            title="Bicycle",
            content="Two wheels.",
            type="product",
            category="",
            images="[]",
            price_cents=0,
            price_type="fixed",
            location="",
            region="",
            district="",
            latitude=None,
            longitude=None,
            is_active=True,
        ),
        [],
    )


@pytest.mark.parametrize("name", [name for name in fields.FIELDS if name not in REQUIRED])
def test_null_on_create_means_not_given(name: str) -> None:
    assert fields.parse_new_listing({**REQUIRED, name: None}) == fields.parse_new_listing(REQUIRED)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_field_that_is_null_or_absent_is_rejected(name: str) -> None:
    for body in ({**REQUIRED, name: None}, {other: REQUIRED[other] for other in REQUIRED if other != name}):
        with pytest.raises(Problem) as caught:
            fields.parse_new_listing(body)
        assert (caught.value.code, caught.value.message) == ("invalid_request", f"{name} is required")


def test_an_empty_update_changes_nothing() -> None:
    assert fields.parse_listing_change({}) == ({}, [])


def test_null_on_update_clears_every_optional_field() -> None:
    optional = [name for name, field in fields.FIELDS.items() if field.attribute in DEFAULTS]
    assert fields.parse_listing_change(dict.fromkeys(optional)) == (DEFAULTS, [])


@pytest.mark.decision("G5")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("title", "must be a string, got null"),
        ("content", "must be a string, got null"),
        ("type", "must be one of product, service, rental, job, got null"),
        ("is_active", "must be true or false, got null"),
    ],
)
def test_null_on_update_is_rejected_for_a_field_that_cannot_be_empty(name: str, error: str) -> None:
    with pytest.raises(Problem) as caught:
        fields.parse_listing_change({name: None})
    assert (caught.value.code, caught.value.message) == ("invalid_request", f"{name} {error}")


def test_unknown_fields_are_ignored_and_named_in_their_order() -> None:
    body: dict[str, object] = {
        "id": 1,
        **REQUIRED,
        "view_count": 9,
        "created_at": None,
        "updated_at": "x",
        "Title": "y",
        "": {},
    }
    ignored = ["id", "view_count", "created_at", "updated_at", "Title", ""]
    assert fields.parse_new_listing(body) == (fields.parse_new_listing(REQUIRED)[0], ignored)
    assert fields.parse_listing_change(body) == (REQUIRED, ignored)


def test_strict_handling_rejects_unknown_fields() -> None:
    message = '"id" is not a field that can be set; "Title" is not a field that can be set'
    for parse in (fields.parse_new_listing, fields.parse_listing_change):
        with pytest.raises(Problem) as caught:
            parse({"id": 1, **REQUIRED, "Title": None}, strict=True)
        assert (caught.value.code, caught.value.message) == ("invalid_request", message)


@pytest.mark.decision("G32")
def test_one_error_lists_every_invalid_field_in_order() -> None:
    with pytest.raises(Problem) as caught:
        fields.parse_new_listing({"price": "cheap", "type": "car", "images": ["a b"], "content": 5})
    assert caught.value.message == (
        "title is required; "
        "content must be a string, got a number; "
        'type must be one of product, service, rental, job, got "car"; '
        'images[0] must be a URL without spaces, control characters or backslashes, got "a b"; '
        'price must be a number, got "cheap"'
    )


@pytest.mark.parametrize(("count", "listed", "more"), [(20, 20, None), (21, 20, "and 1 more"), (5000, 20, "4980")])
def test_at_most_twenty_errors_are_listed(count: int, listed: int, more: str | None) -> None:
    with pytest.raises(Problem) as caught:
        fields.parse_listing_change({f"key{n}": n for n in range(count)}, strict=True)
    errors = caught.value.message.split("; ")
    assert sum("is not a field" in error for error in errors) == listed
    assert len(errors) == listed + (more is not None)
    assert more is None or more in errors[-1]


VALUES: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.none()),
)


@pytest.mark.parametrize("parse", [fields.parse_new_listing, fields.parse_listing_change])
@given(body=st.dictionaries(st.text(max_size=5) | st.sampled_from(list(fields.FIELDS)), VALUES), strict=st.booleans())
def test_any_body_is_parsed_or_rejected_with_a_message(
    parse: Callable[..., object], body: dict[str, object], *, strict: bool
) -> None:
    problems: list[Problem] = []
    try:
        parse(body, strict=strict)
    except Problem as problem:
        problems.append(problem)
    assert all(problem.code == "invalid_request" and problem.message for problem in problems)
