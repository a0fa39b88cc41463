"""How pages show pictures: uploaded ones in several sizes, those of other hosts as they are."""

import pytest

from listings.site.pictures.sources import Source, find_source, list_sources

NAME = "0123456789abcdef0123456789abcdef"
OWN = f"/media/{NAME}.jpg"


@pytest.mark.parametrize("url", [OWN, f"https://old.example{OWN}", f"http://old.example/shop{OWN}"])
@pytest.mark.parametrize("prefix", ["", "/shop"])
def test_an_uploaded_picture_is_recognised_under_any_host(url: str, prefix: str) -> None:
    media = f"{prefix}/media/{NAME}"
    srcset = f"{media}-400.webp 400w, {media}-800.webp 800w, {media}-1600.webp 1600w"
    assert find_source(url, {NAME: (1600, 1200)}, prefix) == Source(
        f"{media}.jpg", f"{media}-400.webp", srcset, 1600, 1200
    )


@pytest.mark.parametrize(
    ("size", "widths"),
    [
        ((1200, 1600), ["-400.webp 300w", "-800.webp 600w", "-1600.webp 1200w"]),
        ((1000, 500), ["-400.webp 400w", "-800.webp 800w", "-1600.webp 1000w"]),
        ((640, 480), ["-400.webp 400w", "-800.webp 640w"]),
        ((300, 300), ["-400.webp 300w"]),
    ],
)
def test_a_variant_has_its_own_width_and_none_is_listed_twice(size: tuple[int, int], widths: list[str]) -> None:
    source = find_source(OWN, {NAME: size}, "")
    assert source is not None
    assert source.srcset == ", ".join(f"/media/{NAME}{width}" for width in widths)
    assert (source.small, source.width, source.height) == (f"/media/{NAME}-400.webp", *size)


def test_a_deleted_picture_is_not_shown() -> None:
    assert find_source(OWN, {}, "") is None


def test_a_picture_of_another_service_is_loaded_from_there() -> None:
    url = f"https://other.example{OWN}"
    assert find_source(url, {}, "/shop") == Source(url, url)


def test_only_pictures_that_a_page_may_show_are_listed() -> None:
    images = '["https://images.example/1.jpg", "2.jpg", "javascript:alert(1)", "/static/demo/table.webp"]'
    assert [one.url for one in list_sources(images, {}, "/shop")] == [
        "https://images.example/1.jpg",
        "/shop/static/demo/table.webp",
    ]
