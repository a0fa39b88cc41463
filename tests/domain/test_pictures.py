"""The names, paths and sizes of uploaded pictures."""

from time import perf_counter

import pytest

from listings.domain import pictures

NAME = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "url",
    [
        f"/media/{NAME}.jpg",
        f"/shop/media/{NAME}.jpg",
        f"https://market.example/media/{NAME}.jpg",
        f"HTTP://old.example:8000/shop/media/{NAME}.jpg",
    ],
)
def test_the_url_of_a_picture_is_recognised_under_any_host(url: str) -> None:
    assert pictures.find_name(url) == NAME


@pytest.mark.parametrize(
    "url",
    [
        "",
        NAME,
        f"{NAME}.jpg",
        f"/media/{NAME.upper()}.jpg",
        f"/MEDIA/{NAME}.jpg",
        f"//market.example/media/{NAME}.jpg",
        f"ftp://market.example/media/{NAME}.jpg",
        f"/media/{NAME}-400.webp",
        f"/media/{NAME}.jpg?w=1",
        f"/media/{NAME}.jpg#a",
        f"/media/{NAME}.jpg\n",
        f"/media/{NAME}0.jpg",
        f"https:///media/{NAME}.jpg",
    ],
)
def test_another_url_is_not_that_of_a_picture(url: str) -> None:
    assert pictures.find_name(url) is None


def test_random_names_differ_and_are_recognised() -> None:
    names = {pictures.create_name() for _ in range(100)}
    assert len(names) == 100
    assert all(pictures.find_name(pictures.build_path(name, "/shop")) == name for name in names)


def test_each_file_of_a_picture_leads_to_its_name() -> None:
    files = pictures.list_files(NAME)
    assert files == (f"{NAME}.jpg", f"{NAME}-400.webp", f"{NAME}-800.webp", f"{NAME}-1600.webp")
    assert {pictures.parse_file(file) for file in files} == {NAME}
    assert [pictures.get_media_type(file) for file in files] == ["image/jpeg", *["image/webp"] * 3]


@pytest.mark.parametrize("file", [f"{NAME}.webp", f"{NAME}-401.webp", f"../{NAME}.jpg", f"{NAME}.jpg\n", ".part"])
def test_no_other_file_leads_to_a_name(file: str) -> None:
    assert pictures.parse_file(file) is None


@pytest.mark.parametrize(
    ("size", "side", "expected"),
    [((1600, 1200), 400, (400, 300)), ((1200, 1600), 800, (600, 800)), ((300, 200), 400, (300, 200))],
)
def test_a_variant_is_smaller_but_never_larger(size: tuple[int, int], side: int, expected: tuple[int, int]) -> None:
    assert pictures.compute_size(*size, side) == expected


def test_a_narrow_picture_has_at_least_one_pixel() -> None:
    assert pictures.compute_size(1600, 1, 400) == (400, 1)


def test_a_long_path_is_refused_quickly() -> None:
    started = perf_counter()
    assert pictures.find_name("/a" * 1000 + "/media/x") is None
    assert perf_counter() - started < 0.1
