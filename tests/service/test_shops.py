"""Columns by meaning: exports of other shops, spreadsheets written by hand, and chosen columns."""

import json
from pathlib import Path

import pytest

from listings.domain.errors import Problem
from listings.service.transfer.columns import ReadOptions, build_header
from tests.service.importing import Shop

FOLDER = Path(__file__).parent / "shops"


def import_shop(shop: Shop, name: str, read: ReadOptions = ReadOptions()) -> dict[str, list[object]]:  # noqa: B008
    outcomes = set(shop.outcomes((FOLDER / name).read_bytes(), name, read=read))
    assert outcomes <= {"created", 'price must be in New Zealand dollars, got "80.00 USD"'}
    return {
        one.title: [
            one.price_cents,
            one.category,
            one.external_id,
            [url.split("/")[-1] for url in json.loads(one.images)],
        ]
        for one in shop.listings()
    }


def test_shopify(shop: Shop) -> None:
    pictures = ["tee-1.jpg", "tee-2.jpg", "tee-3.jpg"]
    assert import_shop(shop, "shopify.csv") == {
        "Merino tee – S / Red": [4990, "Shirts", "00123", pictures],
        "Merino tee – M / Red": [5490, "Shirts", "00124", pictures],
        "Kettle": [3000, "Kitchen", "KETTLE", ["kettle.jpg"]],
    }
    tee, other, kettle = shop.listings()
    assert tee.content == other.content == "Soft & warm.\nWash at 30°C"
    assert [one.is_active for one in (tee, other, kettle)] == [True, True, False]


@pytest.mark.parametrize("start", [b"sep=,\n", b"\xef\xbb\xbfsep=,\r\n", b'"sep=,"\n', b"\n\n"])
def test_what_precedes_the_header_is_not_a_product(shop: Shop, start: bytes) -> None:
    assert shop.outcomes(start + (FOLDER / "shopify.csv").read_bytes(), "shopify.csv") == ["created"] * 3
    assert shop.titles() == ["Merino tee – S / Red", "Merino tee – M / Red", "Kettle"]
    assert len(json.loads(shop.listings()[0].images)) == 3


def test_variants_can_be_skipped(shop: Shop) -> None:
    found = import_shop(shop, "shopify.csv", ReadOptions(skip_variants=True))
    assert list(found) == ["Merino tee", "Kettle"]
    assert found["Merino tee"][3] == ["tee-1.jpg", "tee-2.jpg", "tee-3.jpg"]


def test_woocommerce(shop: Shop) -> None:
    assert import_shop(shop, "woocommerce.csv") == {
        "Cap": [950, "Hats", "CAP", ["cap.jpg", "cap-2.jpg"]],
        "Hoodie - Blue": [4500, "Hoodies", "HOODIE-B", ["hoodie.jpg"]],
        "Hoodie - Red": [4600, "Hoodies", "HOODIE-R", ["red.jpg"]],
        "Mug": [800, "Kitchen", "3074", []],
    }
    assert [one.content for one in shop.listings()] == ["Warm.\n\nOne size.", "Thick.", "Thick.", "Only short"]
    assert shop.listings()[-1].is_active is False


def test_woocommerce_without_variations(shop: Shop) -> None:
    found = import_shop(shop, "woocommerce.csv", ReadOptions(skip_variants=True))
    assert list(found) == ["Cap", "Hoodie", "Mug"]


def test_etsy(shop: Shop) -> None:
    assert import_shop(shop, "etsy.csv") == {"Felt bag": [4500, "", "BAG-1", ["1.jpg", "2.jpg"]]}


def test_google_merchant(shop: Shop) -> None:
    assert import_shop(shop, "google_merchant.tsv") == {
        "Desk": [45000, "Office", "SKU-9", ["desk.jpg", "desk-2.jpg", "desk-3.jpg"]]
    }


def test_square(shop: Shop) -> None:
    assert import_shop(shop, "square.csv") == {
        "Coffee – Small": [450, "Drinks", "C-S", []],
        "Coffee – Large": [550, "Drinks", "C-L", []],
        "Cup": [2000, "Crockery", "CUP", []],
    }
    assert {one.content for one in shop.listings()} == {"Fair trade", "Stoneware"}


def test_a_spreadsheet_written_by_hand(shop: Shop) -> None:
    assert import_shop(shop, "by_hand.csv") == {
        "Road bike": [125000, "Bicycles", "A-1", ["1.jpg", "2.jpg"]],
        "Lamp": [0, "Lighting", "A-2", []],
    }
    bike = shop.listings()[0]
    assert (bike.region, bike.location, bike.price_type, bike.content) == (
        "Wgtn",
        "Petone",
        "negotiable",
        "Alloy frame, 56 cm.",
    )
    assert shop.outcomes((FOLDER / "by_hand.csv").read_bytes()) == ["unchanged"] * 2


@pytest.mark.parametrize(
    ("name", "column"),
    [
        *(
            ("Product name", "title"),
            ("Price (NZ$)", "price"),
            ("Body (HTML)", "content"),
            ("External ID", "external_id"),
        ),
        *(
            ("Your own ID", "external_id"),
            ("SKU", "external_id"),
            ("Is active", "is_active"),
            ("created at", "created_at"),
        ),
        *(("Image 2", "images"), ("photo_url", "images"), ("Suburb", "location"), ("On the market", "is_active")),
        *(("Colour", "Colour"), ("qty", "qty"), ("", "")),
    ],
)
def test_columns_are_known_by_their_meaning(name: str, column: str) -> None:
    assert build_header([name], "a.csv", ReadOptions()).columns == [column]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("Product Name,Product Code/SKU,Price,Product Image File - 1", "title,external_id,price,images"),
        ("Title,PicURL,StartPrice,BuyItNowPrice,CustomLabel", "title,images,-,price,external_id"),
        ("name,collection,sku,productImageUrl,visible", "title,category,external_id,images,is_active"),
        ("name,base_image,additional_images,product_online", "title,images,images,is_active"),
        ("Name *,Reference #,Price tax included,Image URLs (x.y.z...)", "title,external_id,price,images"),
    ],
    ids=["BigCommerce", "eBay", "Wix", "Magento", "PrestaShop"],
)
def test_headers_of_further_shops(header: str, columns: str) -> None:
    assert ",".join(build_header(header.split(","), "file", ReadOptions()).columns) == columns


def test_an_exact_name_wins_and_columns_can_be_chosen(shop: Shop) -> None:
    header = ["Name", "title", "Details", "Foo"]
    assert build_header(header, "a.csv", ReadOptions()).columns == ["-", "title", "content", "Foo"]
    mapping = {"Name": "title", "Foo": "category"}
    assert build_header(header, "a.csv", ReadOptions(mapping)).columns == ["title", "-", "content", "category"]
    text = "Name,title,Details,Foo\nA,B,c,d\n"
    assert shop.outcomes(text, read=ReadOptions(mapping)) == ["created"]
    assert (shop.titles(), shop.listings()[0].category) == (["A"], "d")
    assert shop.run(text, again=False)[0].outcome == "created"  # the mapping is part of what identifies an import


def test_a_chosen_column_must_exist() -> None:
    with pytest.raises(Problem, match=r"a\.csv has no column Naam"):
        build_header(["title"], "a.csv", ReadOptions({"Naam": "title"}))
