"""A listing in schema.org's words."""

import json
from typing import Any

import msgspec
import pytest

from listings.domain.model import Listing
from listings.site.structured_data import data_of, script_of

ADDRESS = "https://market.example/listings/1025"
BARE = Listing(
    id=1025, account_id=1, version=1, title="Bicycle", content="Two wheels.", type="product", category="", images="[]",
    price_cents=0, price_type="fixed", location="", region="", district="", latitude=None, longitude=None,
    is_active=True, view_count=0, created_at="2026-11-21 06:54:32", updated_at="2026-11-21 06:54:32", deleted_at=None,
)  # fmt: skip
PLACED: dict[str, Any] = {
    "location": "Te Aro",
    "district": "Wellington City",
    "region": "Wellington",
    "latitude": -41.29,
    "longitude": 174.77,
}
POSTAL = {
    "@type": "PostalAddress",
    "streetAddress": "Te Aro",
    "addressLocality": "Wellington City",
    "addressRegion": "Wellington",
    "addressCountry": "NZ",
}
GEO = {"@type": "GeoCoordinates", "latitude": -41.29, "longitude": 174.77}


def data(**fields: object) -> dict[str, Any]:
    return data_of(msgspec.structs.replace(BARE, **fields), ADDRESS)


def offer(price: str, unit: str | None = None) -> dict[str, Any]:
    money = {"price": price, "priceCurrency": "NZD"}
    made: dict[str, Any] = {"@type": "Offer", **money, "availability": "https://schema.org/InStock", "url": ADDRESS}
    if unit is not None:
        made["priceSpecification"] = {"@type": "UnitPriceSpecification", **money, "unitCode": unit}
    return made


def test_what_is_not_known_is_left_out() -> None:
    assert data() == {
        "@context": "https://schema.org",
        "@type": "Product",
        "name": "Bicycle",
        "description": "Two wheels.",
        "url": ADDRESS,
    }
    assert data(type="job").keys() == {"@context", "@type", "title", "description", "datePosted", "url"}


def test_a_product_has_an_offer_and_its_pictures() -> None:
    made = data(price_cents=199_905, category="Bicycles", images='["https://images.example/1.jpg", "/2.jpg"]')
    assert made["offers"] == offer("1999.05")
    assert (made["category"], made["image"]) == ("Bicycles", ["https://images.example/1.jpg"])


def test_a_service_tells_its_area_and_its_price_by_the_hour() -> None:
    made = data(type="service", category="Trades", region="Otago", price_cents=6_500, price_type="per_hour")
    assert (made["@type"], made["serviceType"]) == ("Service", "Trades")
    assert made["areaServed"] == {"@type": "AdministrativeArea", "name": "Otago"}
    assert made["offers"] == offer("65.00", "HUR")


def test_a_rental_is_a_place_to_stay_with_a_price_by_the_night() -> None:
    made = data(type="rental", price_cents=14_500, price_type="per_night", **PLACED)
    assert made["@type"] == ["Accommodation", "Product"]
    assert (made["address"], made["geo"], made["offers"]) == (POSTAL, GEO, offer("145.00", "DAY"))


def test_a_job_tells_where_and_what_for() -> None:
    made = data(type="job", category="Retail", price_cents=2_780, price_type="per_hour", **PLACED)
    assert (made["@type"], made["title"], made["datePosted"]) == ("JobPosting", "Bicycle", "2026-11-21T06:54:32Z")
    assert made["jobLocation"] == {"@type": "Place", "address": POSTAL, "geo": GEO}
    assert made["baseSalary"] == {
        "@type": "MonetaryAmount",
        "currency": "NZD",
        "value": {"@type": "QuantitativeValue", "value": 27.8, "unitText": "HOUR"},
    }
    assert "unitText" not in data(type="job", price_cents=100, price_type="fixed")["baseSalary"]["value"]


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--", "]]>", "a\u2028b\u2029c & d", '"\\'])
def test_nothing_in_a_listing_ends_the_script_and_all_is_read_back(text: str) -> None:
    script = script_of(msgspec.structs.replace(BARE, title=text), ADDRESS)
    assert not set(script) & set("<>&\u2028\u2029")
    assert json.loads(script)["name"] == text
