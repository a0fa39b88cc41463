"""Decoding forms."""

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain.errors import Problem
from listings.http.large_bodies import LARGE_BODY_BYTES
from listings.site.console.guards import parse_form

ESCAPES = st.lists(st.sampled_from([*"a4F= &+%_~\n\r\t;\0", "%41", "%C3%A9", "%e9", "%0A"])).map("".join)


@given(st.lists(st.tuples(st.text(), st.text())))
def test_what_a_browser_encodes_is_decoded(pairs: list[tuple[str, str]]) -> None:
    assert parse_form(urlencode(pairs).encode()).multi_items() == pairs


@given(ESCAPES)
def test_invalid_escapes_stay_as_they_are(body: str) -> None:
    assert parse_form(body.encode()).multi_items() == parse_qsl(body, keep_blank_values=True)


@pytest.mark.parametrize("escape", [b"%zz", b"%", b"%%41", b"%\n", b"%\r"])
def test_a_large_form_with_invalid_escapes_is_rejected(escape: bytes) -> None:
    with pytest.raises(Problem, match="not followed by two hexadecimal digits"):
        parse_form(b"content=" + b"a" * LARGE_BODY_BYTES + escape)
