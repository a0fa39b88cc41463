"""Cells of a file that name the files of uploaded pictures."""

import pytest

from listings.domain.pictures import Picture, build_path
from tests.harness import Person, create_member
from tests.service.importing import Shop

MISSING = "images[0] must be a URL or the file name of an uploaded picture, got "
WEB = "https://images.example/1.jpg"


def upload(shop: Shop, number: int, file_name: str, owner: Person | None = None) -> str:
    account = (owner or shop.person).account
    new = Picture(f"{number:032x}", account.id, 800, 600, 1_000, 1_790_000_000 + number, None, file_name)
    shop.harness.run(shop.harness.store.add_picture(new, number.to_bytes(32, "big"), 10**6))
    return build_path(new.name)


def build_file(*cells: str) -> bytes:
    rows = (f'T{index},c,"{cell}"'.encode() for index, cell in enumerate(cells))
    return b"\n".join([b"title,content,images", *rows, b""])


def images(shop: Shop) -> list[str]:
    return [one.images for one in sorted(shop.listings(), key=lambda one: one.title)]


def test_a_file_name_means_the_newest_picture_of_the_account(shop: Shop) -> None:
    upload(shop, 1, "bike.jpg")
    newest = upload(shop, 2, "Bike.JPG")
    upload(shop, 3, "bike.jpg", shop.harness.run(create_member(shop.harness.services, "bob")))
    assert shop.outcomes(build_file("bike.jpg", r"C:\Users\me\BIKE.jpg")) == ["created", "created"]
    assert images(shop) == [f'["{newest}"]'] * 2


@pytest.mark.parametrize("cell", ["my bike.jpg, lamp.png", "my bike.jpg\nlamp.png", "my bike.jpg|lamp.png"])
def test_a_cell_may_have_several_file_names(shop: Shop, cell: str) -> None:
    paths = [upload(shop, 1, "my bike.jpg"), upload(shop, 2, "lamp.png")]
    assert shop.outcomes(build_file(cell)) == ["created"]
    assert images(shop) == [f'["{paths[0]}","{paths[1]}"]']


def test_file_names_and_addresses_can_be_mixed(shop: Shop) -> None:
    path = upload(shop, 1, "bike.jpg")
    assert shop.outcomes(build_file(f"bike.jpg {WEB}", f"{WEB}\nbike.jpg", "bike.jpg bike.jpg")) == ["created"] * 3
    assert images(shop) == [f'["{path}","{WEB}"]', f'["{WEB}","{path}"]', f'["{path}","{path}"]']


def test_a_row_with_an_unknown_file_name_is_rejected(shop: Shop) -> None:
    upload(shop, 1, "bike.jpg")
    file = build_file("bike.jpg", "lamp.jpg", "bike.jpg, lamp.jpg")
    assert shop.outcomes(file) == ["created", f'{MISSING}"lamp.jpg"', f'{MISSING}"bike.jpg, lamp.jpg"']


def test_a_dry_run_takes_expected_pictures_for_uploaded(shop: Shop) -> None:
    file = build_file("bike.jpg")
    assert [one.outcome for one in shop.run(file, dry_run=True, expected_pictures=["Bike.jpg"])] == ["created"]
    assert shop.outcomes(file) == [f'{MISSING}"bike.jpg"']


def test_the_same_file_changes_nothing_when_imported_again(shop: Shop) -> None:
    upload(shop, 1, "bike.jpg")
    file = b'title,content,images,external_id\nBike,c,"bike.jpg",B-1\n'
    assert [shop.outcomes(file), shop.outcomes(file, again=True)] == [["created"], ["unchanged"]]
