"""Every rule and bound of a listing's fields, on both sides of each edge (decisions G2-G6, G32)."""

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from listings.domain import fields
from listings.domain.errors import Problem
from listings.domain.model import NewListing

NEEDED = {"title": "Bicycle", "content": "Two wheels."}
TEXTS = {"title": 255, "content": 100_000, "category": 100, "location": 255, "region": 100, "district": 100}
OPTIONAL_TEXTS = ["category", "location", "region", "district"]
NUMBERS = ["price", "latitude", "longitude"]
CLEARED: Mapping[str, object] = {
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
MOST = 99_999_999_999


def stored(name: str, value: object, *, strict: bool = False) -> object:
    """What a create and an update alike store of one field."""
    attribute = fields.FIELDS[name].attribute
    new, _ = fields.read_new({**NEEDED, name: value}, strict=strict)
    change, _ = fields.read_change({name: value}, strict=strict)
    assert change == {attribute: getattr(new, attribute)}
    return getattr(new, attribute)


def refusal(name: str, value: object, *, strict: bool = False) -> str:
    """What a create and an update alike say to one bad field."""
    with pytest.raises(Problem) as of_create:
        fields.read_new({**NEEDED, name: value}, strict=strict)
    with pytest.raises(Problem) as of_change:
        fields.read_change({name: value}, strict=strict)
    assert of_create.value.code == of_change.value.code == "invalid_request"
    assert of_create.value.message == of_change.value.message
    return of_change.value.message


def test_the_fields_are_those_of_the_specification_in_its_order_and_is_active() -> None:
    assert list(fields.FIELDS) == [
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
    ]


# Text


@pytest.mark.parametrize(("name", "longest"), TEXTS.items())
def test_text_may_be_as_long_as_its_bound(name: str, longest: int) -> None:
    assert stored(name, "x" * longest) == "x" * longest


@pytest.mark.decision("G2")
@pytest.mark.parametrize(("name", "longest"), TEXTS.items())
def test_text_that_is_one_character_longer_is_refused(name: str, longest: int) -> None:
    assert refusal(name, "x" * (longest + 1)) == f"{name} must be at most {longest} characters, got {longest + 1}"


@pytest.mark.decision("G2")
@pytest.mark.parametrize(("name", "longest"), TEXTS.items())
@pytest.mark.parametrize("character", ["é", "中", "😀", "\u0301"])
def test_lengths_are_counted_in_code_points(name: str, longest: int, character: str) -> None:
    assert stored(name, character * longest) == character * longest
    assert f"got {longest + 1}" in refusal(name, character * (longest + 1))


@pytest.mark.parametrize("name", ["title", "content"])
def test_one_character_is_enough(name: str) -> None:
    assert stored(name, "x") == "x"


@pytest.mark.parametrize("name", ["title", "content"])
@pytest.mark.parametrize("blank", ["", " ", "\t\r\n", "\u00a0\u3000\u2003", "\v\f", " " * 200])
def test_a_title_or_a_content_of_white_space_alone_counts_as_missing(name: str, blank: str) -> None:
    assert refusal(name, blank) == f"{name} is required and must not be blank"


@pytest.mark.parametrize("name", OPTIONAL_TEXTS)
@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_every_other_text_may_be_blank(name: str, text: str) -> None:
    assert stored(name, text) == text


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("text", ["\0", "a\0", "\0a", "a\0b"])
def test_the_character_u0000_is_refused_wherever_it_stands(name: str, text: str) -> None:
    assert refusal(name, text) == f"{name} must not contain the character U+0000"


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    ("value", "kind"),
    [(5, "a number"), (0.5, "a number"), (True, "true or false"), (["a"], "a list"), ({"a": "b"}, "an object")],
)
def test_what_is_no_text_is_refused(name: str, value: object, kind: str) -> None:
    assert refusal(name, value) == f"{name} must be text, got {kind}"


@pytest.mark.parametrize("name", TEXTS)
@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=90))
@example(text="a\v\f\x01\x7f\x80\u2028\ufeff\uffffz")
@example(text="e\u0301 is not \u00e9")
def test_any_other_text_is_kept_exactly_as_sent(name: str, text: str) -> None:
    sent = f" x{text} "
    assert stored(name, sent) == sent


# Words


@pytest.mark.parametrize("word", ["product", "service", "rental", "job"])
def test_the_four_types_are_kept(word: str) -> None:
    assert stored("type", word) == word


@pytest.mark.parametrize("word", ["fixed", "negotiable", "per_hour", "per_night"])
def test_the_four_price_types_are_kept(word: str) -> None:
    assert stored("price_type", word) == word


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
        (["product"], "a list"),
        ({"a": 1}, "an object"),
        (10**39 - 1, "9" * 39),
        (10**39, "a number of 40 digits or more"),
        (10**400, "a number of 40 digits or more"),
        (-(10**400), "a number of 40 digits or more"),
        ("x" * 38, '"' + "x" * 38 + '"'),
        ("x" * 39, '"' + "x" * 36 + "..."),
    ],
)
def test_any_other_word_is_refused_and_the_allowed_ones_are_named(value: object, got: str) -> None:
    assert refusal("type", value) == f"type must be one of product, service, rental, job, got {got}"
    assert (
        refusal("price_type", value) == f"price_type must be one of fixed, negotiable, per_hour, per_night, got {got}"
    )


@pytest.mark.parametrize(("name", "word"), [("type", "fixed"), ("price_type", "product")])
def test_a_word_of_the_other_field_is_refused(name: str, word: str) -> None:
    assert f'got "{word}"' in refusal(name, word)


# Flags


@pytest.mark.parametrize("flag", [True, False])
def test_a_flag_is_kept(*, flag: bool) -> None:
    assert stored("is_active", flag) is flag


@pytest.mark.parametrize(
    ("value", "got"),
    [(0, "0"), (1, "1"), (1.0, "1.0"), ("true", '"true"'), ("", '""'), ([], "a list"), ({}, "an object")],
)
def test_what_is_no_flag_is_refused(value: object, got: str) -> None:
    assert refusal("is_active", value) == f"is_active must be true or false, got {got}"


# Money


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
        (999_999_999.98, MOST - 1),
        (999_999_999.99, MOST),
        (999_999_999.9900001, MOST),
    ],
)
def test_a_price_is_kept_in_cents(price: float, cents: int) -> None:
    value = stored("price", price)
    assert (value, type(value)) == (cents, int)


@settings(max_examples=1000)
@given(st.integers(0, MOST))
@example(0)
@example(1)
@example(MOST)
def test_every_price_in_cents_is_read_back_from_what_is_shown(cents: int) -> None:
    shown = json.loads(json.dumps(cents / 100))
    assert stored("price", shown) == cents
    assert stored("price", float(f"{cents // 100}.{cents % 100:02}")) == cents


@pytest.mark.decision("G4")
@given(st.integers(0, MOST // 1000 * 1000), st.integers(1, 9))
def test_every_third_decimal_is_refused(cents: int, third: int) -> None:
    price = float(f"{cents // 100}.{cents % 100:02}{third}")
    assert refusal("price", price) == f"price must have at most two decimals, got {json.dumps(price)}"


@pytest.mark.parametrize("price", [0.001, 0.005, 0.009, 1.005, 9.999, 0.00001, 0.0000011, 10.000002, 999_999_999.985])
def test_a_fraction_of_a_cent_is_refused(price: float) -> None:
    assert refusal("price", price) == f"price must have at most two decimals, got {json.dumps(price)}"


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
def test_a_price_out_of_its_bounds_is_refused(price: float, got: str) -> None:
    assert refusal("price", price) == f"price must be from 0 to 999999999.99, got {got}"


# Coordinates


@pytest.mark.decision("G4")
@pytest.mark.parametrize(("name", "bound"), [("latitude", 90), ("longitude", 180)])
@pytest.mark.parametrize("sign", [1, -1])
def test_coordinates_reach_their_bounds(name: str, bound: int, sign: int) -> None:
    degrees = stored(name, sign * bound)
    assert (degrees, type(degrees)) == (float(sign * bound), float)


@pytest.mark.parametrize(("name", "bound"), [("latitude", 90), ("longitude", 180)])
@pytest.mark.parametrize("beyond", [0.000001, 1, 10**400])
@pytest.mark.parametrize("sign", [1, -1])
def test_coordinates_beyond_their_bounds_are_refused(name: str, bound: int, beyond: float, sign: int) -> None:
    assert refusal(name, sign * (bound + beyond)).startswith(f"{name} must be from -{bound} to {bound}, got ")


@pytest.mark.parametrize("name", ["latitude", "longitude"])
@pytest.mark.parametrize("degrees", [-41.28664, 0.1, 5e-324, 89.99999999999999])
def test_coordinates_are_kept_to_the_last_digit(name: str, degrees: float) -> None:
    assert stored(name, degrees) == degrees


@pytest.mark.parametrize("name", ["latitude", "longitude"])
def test_minus_zero_degrees_are_zero(name: str) -> None:
    assert json.dumps(stored(name, -0.0)) == "0.0"


@pytest.mark.parametrize("name", ["latitude", "longitude"])
def test_one_coordinate_does_not_need_the_other(name: str) -> None:
    new, _ = fields.read_new({**NEEDED, name: 12.5})
    assert {new.latitude, new.longitude} == {12.5, None}


@pytest.mark.decision("G4")
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("value", "got"),
    [
        (True, "true"),
        (False, "false"),
        ("5", '"5"'),
        ("0.1", '"0.1"'),
        ("", '""'),
        ([5], "a list"),
        ({"amount": 5}, "an object"),
    ],
)
def test_what_is_no_number_is_refused(name: str, value: object, got: str) -> None:
    assert refusal(name, value) == f"{name} must be a number, got {got}"


# Images


@pytest.mark.decision("G3")
@pytest.mark.parametrize(
    "address",
    [
        "https://pictures.example/1.jpg",
        "http://pictures.example",
        "HTTPS://Pictures.Example:8443/a?b=c#d",
        "http://192.0.2.1/x",
        "http://[2001:db8::1]:80/x",
        "https://pictures.example/user@home",
        "https://pictures.example?who=a@b",
        "https://pictures.example#a@b",
        "https://bücher.example/städte/鳥.png",
        "https://pictures.example/a%20b",
        "https://pictures.example/'\"<>{}|^`",
        "//pictures.example/1.jpg",
        "/uploads/1.jpg",
        "uploads/1.jpg",
        "1.jpg",
        "./a:b",
        "uploads/a:b",
        "1a:b",
        "?a=b",
        "#a",
        "x",
    ],
)
def test_an_address_is_kept_as_sent(address: str) -> None:
    assert json.loads(str(stored("images", [address]))) == [address]


@pytest.mark.decision("G3")
@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("", "must be an address of 1 to 2048 characters"),
        (None, "must be an address of 1 to 2048 characters"),
        (5, "must be an address of 1 to 2048 characters"),
        (True, "must be an address of 1 to 2048 characters"),
        (["https://a.example"], "must be an address of 1 to 2048 characters"),
        ({"url": "https://a.example"}, "must be an address of 1 to 2048 characters"),
        ("https://a.example/a b", "must not contain white space, a control character or a backslash"),
        (" https://a.example", "must not contain white space, a control character or a backslash"),
        ("https://a.example\n", "must not contain white space, a control character or a backslash"),
        ("java\tscript:alert(1)", "must not contain white space, a control character or a backslash"),
        ("https://a.example/\u00a0", "must not contain white space, a control character or a backslash"),
        ("https://a.example/\u2028", "must not contain white space, a control character or a backslash"),
        ("https://a.example/\0", "must not contain white space, a control character or a backslash"),
        ("https://a.example/\x7f", "must not contain white space, a control character or a backslash"),
        ("https://a.example/\x9f", "must not contain white space, a control character or a backslash"),
        ("https:\\\\a.example", "must not contain white space, a control character or a backslash"),
        ("javascript:alert(1)", "must be an http or https address"),
        ("JavaScript:alert(1)", "must be an http or https address"),
        ("data:image/png;base64,AAAA", "must be an http or https address"),
        ("file:///etc/passwd", "must be an http or https address"),
        ("ftp://a.example/1.jpg", "must be an http or https address"),
        ("x-y+z.1:a", "must be an http or https address"),
        ("httpx://a.example", "must be an http or https address"),
        ("http:a.example", "must be an http or https address"),
        ("https:/a.example", "must be an http or https address"),
        ("https://", "must have a host and no user name or password"),
        ("https:///1.jpg", "must have a host and no user name or password"),
        ("https://?a", "must have a host and no user name or password"),
        ("https://:443/1.jpg", "must have a host and no user name or password"),
        ("https://user@a.example", "must have a host and no user name or password"),
        ("https://user:word@a.example/1.jpg", "must have a host and no user name or password"),
        ("https://@a.example", "must have a host and no user name or password"),
    ],
)
def test_a_bad_address_is_refused_with_its_place(address: object, fault: str) -> None:
    message = refusal("images", ["https://a.example/1.jpg", address])
    assert message == f"images[1] {fault}, got {fields.shown(address)}"


@pytest.mark.parametrize("start", ["https://a.example/", ""])
def test_an_address_may_have_2048_characters(start: str) -> None:
    address = start.ljust(2048, "é")
    assert json.loads(str(stored("images", [address]))) == [address]


@pytest.mark.parametrize("strict", [False, True])
def test_an_address_of_2049_characters_is_refused(*, strict: bool) -> None:
    message = refusal("images", ["https://a.example/".ljust(2049, "x")], strict=strict)
    assert (
        message == 'images[0] must be an address of 1 to 2048 characters, got "https://a.example/xxxxxxxxxxxxxxxxxx...'
    )


def test_fifty_images_are_kept_in_order() -> None:
    addresses = [f"https://a.example/{n}.jpg" for n in range(50, 0, -1)]
    assert json.loads(str(stored("images", addresses))) == addresses


@pytest.mark.parametrize("strict", [False, True])
def test_fifty_one_images_are_refused(*, strict: bool) -> None:
    addresses = ["https://a.example/1.jpg"] * 51
    assert refusal("images", addresses, strict=strict) == "images must have at most 50 addresses, got 51"


def test_the_same_image_twice_is_kept_twice() -> None:
    assert stored("images", ["1.jpg", "1.jpg"]) == '["1.jpg","1.jpg"]'


@pytest.mark.parametrize(
    ("value", "kind"),
    [("https://a.example", "text"), (5, "a number"), (True, "true or false"), ({"0": "a"}, "an object")],
)
def test_what_is_no_list_of_images_is_refused(value: object, kind: str) -> None:
    assert refusal("images", value) == f"images must be a list of addresses, got {kind}"


@pytest.mark.parametrize("address", ["/1.jpg", "1.jpg", "//a.example/1.jpg", "?a", "a/b:c"])
def test_strict_handling_refuses_a_relative_address(address: str) -> None:
    message = refusal("images", [address], strict=True)
    assert message == f'images[0] must be an absolute http or https address, got "{address}"'


@pytest.mark.parametrize("address", ["https://a.example/1.jpg", "HTTP://a.example"])
def test_strict_handling_keeps_an_absolute_address(address: str) -> None:
    assert stored("images", [address], strict=True) == json.dumps([address])


# Nothing given


def test_a_new_listing_of_the_needed_fields_alone_holds_the_defaults() -> None:
    assert fields.read_new(NEEDED) == (
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


@pytest.mark.parametrize("name", [name for name in fields.FIELDS if name not in NEEDED])
def test_null_on_create_means_not_given(name: str) -> None:
    assert fields.read_new({**NEEDED, name: None}) == fields.read_new(NEEDED)


@pytest.mark.parametrize("name", NEEDED)
def test_a_needed_field_that_is_null_or_absent_on_create_is_required(name: str) -> None:
    for body in ({**NEEDED, name: None}, {other: NEEDED[other] for other in NEEDED if other != name}):
        with pytest.raises(Problem) as caught:
            fields.read_new(body)
        assert (caught.value.code, caught.value.message) == ("invalid_request", f"{name} is required")


def test_an_update_of_nothing_changes_nothing() -> None:
    assert fields.read_change({}) == ({}, [])


def test_null_on_update_clears_every_optional_field() -> None:
    optional = [name for name, field in fields.FIELDS.items() if field.attribute in CLEARED]
    assert fields.read_change(dict.fromkeys(optional)) == (CLEARED, [])


@pytest.mark.decision("G5")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("title", "must be text, got null"),
        ("content", "must be text, got null"),
        ("type", "must be one of product, service, rental, job, got null"),
        ("is_active", "must be true or false, got null"),
    ],
)
def test_null_on_update_is_refused_where_a_field_can_not_be_empty(name: str, fault: str) -> None:
    with pytest.raises(Problem) as caught:
        fields.read_change({name: None})
    assert (caught.value.code, caught.value.message) == ("invalid_request", f"{name} {fault}")


# Other keys, several faults


def test_other_keys_are_ignored_and_named_in_their_order() -> None:
    body: dict[str, object] = {
        "id": 1,
        **NEEDED,
        "view_count": 9,
        "created_at": None,
        "updated_at": "x",
        "Title": "y",
        "": {},
    }
    ignored = ["id", "view_count", "created_at", "updated_at", "Title", ""]
    assert fields.read_new(body) == (fields.read_new(NEEDED)[0], ignored)
    assert fields.read_change(body) == (NEEDED, ignored)


def test_strict_handling_refuses_other_keys() -> None:
    message = '"id" is not a field that can be set; "Title" is not a field that can be set'
    for read in (fields.read_new, fields.read_change):
        with pytest.raises(Problem) as caught:
            read({"id": 1, **NEEDED, "Title": None}, strict=True)
        assert (caught.value.code, caught.value.message) == ("invalid_request", message)


@pytest.mark.decision("G32")
def test_all_faults_of_a_body_are_told_at_once() -> None:
    with pytest.raises(Problem) as caught:
        fields.read_new({"price": "5", "type": "car", "images": ["a b"], "content": 5})
    assert caught.value.message == (
        'price must be a number, got "5"; '
        'type must be one of product, service, rental, job, got "car"; '
        'images[0] must not contain white space, a control character or a backslash, got "a b"; '
        "content must be text, got a number; "
        "title is required"
    )


@pytest.mark.parametrize(("count", "told", "more"), [(20, 20, None), (21, 20, "and 1 more"), (5000, 20, "4980")])
def test_at_most_twenty_faults_are_told(count: int, told: int, more: str | None) -> None:
    with pytest.raises(Problem) as caught:
        fields.read_change({f"key{n}": n for n in range(count)}, strict=True)
    faults = caught.value.message.split("; ")
    assert sum("is not a field" in fault for fault in faults) == told
    assert len(faults) == told + (more is not None)
    assert more is None or more in faults[-1]


VALUES: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.none()),
)


@pytest.mark.parametrize("read", [fields.read_new, fields.read_change])
@given(body=st.dictionaries(st.text(max_size=5) | st.sampled_from(list(fields.FIELDS)), VALUES), strict=st.booleans())
def test_any_body_is_taken_or_refused_with_a_sentence(
    read: Callable[..., object], body: dict[str, object], *, strict: bool
) -> None:
    refused: list[Problem] = []
    try:
        read(body, strict=strict)
    except Problem as problem:
        refused.append(problem)
    assert all(problem.code == "invalid_request" and problem.message for problem in refused)
