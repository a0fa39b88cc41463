"""Each fault of a body names its field and has a code for programs."""

from typing import Any, get_args

import pytest

from listings.domain.faults import FAULTS, FaultCode, InvalidFieldsError
from listings.domain.fields import parse_new_listing

VALID: dict[str, Any] = {"title": "a", "content": "b"}


def find_faults(body: dict[str, Any], *, strict: bool = False) -> list[tuple[str, str]]:
    with pytest.raises(InvalidFieldsError) as rejected:
        parse_new_listing(VALID | body, strict=strict)
    assert rejected.value.message == "; ".join(fault.message for fault in rejected.value.faults)
    return [(fault.field, fault.code) for fault in rejected.value.faults]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("title", None, "required"),
        ("title", " ", "required"),
        ("title", 1, "wrong_type"),
        ("title", "x" * 256, "too_long"),
        ("title", "a\0", "invalid_characters"),
        ("external_id", "", "too_short"),
        ("external_id", "x" * 256, "too_long"),
        ("external_id", "a\n", "invalid_characters"),
        ("type", "car", "not_allowed"),
        ("type", 1, "wrong_type"),
        ("is_active", "true", "wrong_type"),
        ("price", "1", "wrong_type"),
        ("price", -1, "out_of_range"),
        ("price", 1.234, "too_many_decimals"),
        ("latitude", 91, "out_of_range"),
        ("images", "a", "wrong_type"),
        ("images", ["a"] * 51, "too_many"),
    ],
)
def test_a_fault_of_a_field_has_its_code(field: str, value: object, code: str) -> None:
    assert find_faults({field: value}) == [(field, code)]


def test_a_fault_of_an_image_names_its_index() -> None:
    assert find_faults({"images": ["https://x.example/1", "ftp://x"]}) == [("images[1]", "invalid_url")]


def test_faults_are_in_the_order_of_the_fields() -> None:
    body = {"color": 1, "price": "1", "title": ""}
    assert find_faults(body, strict=True) == [("title", "required"), ("price", "wrong_type"), ("color", "unknown")]


def test_every_code_of_a_fault_is_described() -> None:
    assert set(FAULTS) == set(get_args(FaultCode))
