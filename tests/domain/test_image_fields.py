"""The rules and limits of a listing's images (decision G3)."""

import json

import pytest

from listings.domain.faults import preview
from tests.domain.test_fields import reject, store

pytestmark = pytest.mark.decision("G3")


@pytest.mark.parametrize(
    "url",
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
def test_a_url_is_stored_as_sent(url: str) -> None:
    assert json.loads(str(store("images", [url]))) == [url]


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("", "must be a URL of 1 to 2048 characters"),
        (None, "must be a URL of 1 to 2048 characters"),
        (5, "must be a URL of 1 to 2048 characters"),
        (True, "must be a URL of 1 to 2048 characters"),
        (["https://a.example"], "must be a URL of 1 to 2048 characters"),
        ({"url": "https://a.example"}, "must be a URL of 1 to 2048 characters"),
        ("https://a.example/a b", "must be a URL without spaces, control characters or backslashes"),
        (" https://a.example", "must be a URL without spaces, control characters or backslashes"),
        ("https://a.example\n", "must be a URL without spaces, control characters or backslashes"),
        ("java\tscript:alert(1)", "must be a URL without spaces, control characters or backslashes"),
        ("https://a.example/\u00a0", "must be a URL without spaces, control characters or backslashes"),
        ("https://a.example/\u2028", "must be a URL without spaces, control characters or backslashes"),
        ("https://a.example/\0", "must be a URL without spaces, control characters or backslashes"),
        ("https://a.example/\x7f", "must be a URL without spaces, control characters or backslashes"),
        ("https://a.example/\x9f", "must be a URL without spaces, control characters or backslashes"),
        ("https:\\\\a.example", "must be a URL without spaces, control characters or backslashes"),
        ("javascript:alert(1)", "must be an http or https URL"),
        ("JavaScript:alert(1)", "must be an http or https URL"),
        ("data:image/png;base64,AAAA", "must be an http or https URL"),
        ("file:///etc/passwd", "must be an http or https URL"),
        ("ftp://a.example/1.jpg", "must be an http or https URL"),
        ("x-y+z.1:a", "must be an http or https URL"),
        ("httpx://a.example", "must be an http or https URL"),
        ("http:a.example", "must be an http or https URL"),
        ("https:/a.example", "must be an http or https URL"),
        ("https://", "must have a host and no user name or password"),
        ("https:///1.jpg", "must have a host and no user name or password"),
        ("https://?a", "must have a host and no user name or password"),
        ("https://:443/1.jpg", "must have a host and no user name or password"),
        ("https://user@a.example", "must have a host and no user name or password"),
        ("https://user:word@a.example/1.jpg", "must have a host and no user name or password"),
        ("https://@a.example", "must have a host and no user name or password"),
    ],
)
def test_an_invalid_url_is_rejected_with_its_index(url: object, error: str) -> None:
    message = reject("images", ["https://a.example/1.jpg", url])
    assert message == f"images[1] {error}, got {preview(url)}"


@pytest.mark.parametrize("start", ["https://a.example/", ""])
def test_a_url_may_have_2048_characters(start: str) -> None:
    url = start.ljust(2048, "é")
    assert json.loads(str(store("images", [url]))) == [url]


@pytest.mark.parametrize("strict", [False, True])
def test_a_url_of_2049_characters_is_rejected(*, strict: bool) -> None:
    message = reject("images", ["https://a.example/".ljust(2049, "x")], strict=strict)
    assert message == 'images[0] must be a URL of 1 to 2048 characters, got "https://a.example/xxxxxxxxxxxxxxxxxx...'


def test_fifty_images_are_stored_in_order() -> None:
    urls = [f"https://a.example/{n}.jpg" for n in range(50, 0, -1)]
    assert json.loads(str(store("images", urls))) == urls


@pytest.mark.parametrize("strict", [False, True])
def test_fifty_one_images_are_rejected(*, strict: bool) -> None:
    urls = ["https://a.example/1.jpg"] * 51
    assert reject("images", urls, strict=strict) == "images must have at most 50 URLs, got 51"


def test_a_duplicate_image_is_stored_twice() -> None:
    assert store("images", ["1.jpg", "1.jpg"]) == '["1.jpg","1.jpg"]'


@pytest.mark.parametrize(
    ("value", "json_type"),
    [("https://a.example", "a string"), (5, "a number"), (True, "a boolean"), ({"0": "a"}, "an object")],
)
def test_images_that_are_not_an_array_are_rejected(value: object, json_type: str) -> None:
    assert reject("images", value) == f"images must be an array of URLs, got {json_type}"


@pytest.mark.parametrize("url", ["/1.jpg", "1.jpg", "//a.example/1.jpg", "?a", "a/b:c"])
def test_strict_handling_rejects_a_relative_url(url: str) -> None:
    message = reject("images", [url], strict=True)
    assert message == f'images[0] must be an absolute http or https URL, got "{url}"'


@pytest.mark.parametrize("url", ["https://a.example/1.jpg", "HTTP://a.example"])
def test_strict_handling_accepts_an_absolute_url(url: str) -> None:
    assert store("images", [url], strict=True) == json.dumps([url])


@pytest.mark.parametrize("path", ["/media/0123456789abcdef0123456789abcdef.jpg", f"/shop/media/{'f' * 32}.jpg"])
def test_strict_handling_accepts_the_path_of_an_uploaded_picture(path: str) -> None:
    assert store("images", [path], strict=True) == json.dumps([path])


@pytest.mark.parametrize(
    "path", [f"/media/{'f' * 31}.jpg", f"/media/{'g' * 32}.jpg", f"/media/{'f' * 32}.webp", f"media/{'f' * 32}.jpg"]
)
def test_strict_handling_rejects_a_path_that_no_picture_has(path: str) -> None:
    message = reject("images", [path], strict=True)
    assert message.startswith("images[0] must be an absolute http or https URL")
