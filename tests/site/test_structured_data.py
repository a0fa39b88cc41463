"""Structured data of a listing (JSON-LD, schema.org)."""

import json
from typing import Any

import pytest

from listings.site.structured_data import REQUIRED, build, script_content
from tests.examples import build_listing

URL = "https://market.example/listings/1025"
LOCATED: dict[str, Any] = {
    "location": "Te Aro",
    "district": "Wellington City",
    "region": "Wellington",
    "latitude": -41.29,
    "longitude": 174.77,
}
POSTAL_ADDRESS = {
    "@type": "PostalAddress",
    "streetAddress": "Te Aro",
    "addressLocality": "Wellington City",
    "addressRegion": "Wellington",
    "addressCountry": "NZ",
}
GEO = {"@type": "GeoCoordinates", "latitude": -41.29, "longitude": 174.77}


def data(*pictures: str, **fields: object) -> dict[str, Any]:
    return build(build_listing(**fields), "Alice", URL, pictures)


def offer(price: str, unit: str | None = None) -> dict[str, Any]:
    money = {"price": price, "priceCurrency": "NZD"}
    result: dict[str, Any] = {"@type": "Offer", **money, "availability": "https://schema.org/InStock", "url": URL}
    if unit is not None:
        result["priceSpecification"] = {"@type": "UnitPriceSpecification", **money, "unitCode": unit}
    return result


def test_unknown_properties_are_omitted() -> None:
    assert data(price_cents=100) == {
        "@context": "https://schema.org",
        "@type": "Product",
        "name": "Bicycle",
        "description": "Two wheels.",
        "offers": offer("1.00"),
        "url": URL,
    }


@pytest.mark.parametrize("type_", REQUIRED)
@pytest.mark.parametrize("price_cents", [0, 100])
@pytest.mark.parametrize("place", [{}, LOCATED], ids=["no place", "place"])
def test_nothing_incomplete_is_published(type_: str, price_cents: int, place: dict[str, Any]) -> None:
    built = data(type=type_, price_cents=price_cents, **place)
    is_complete = {"job": bool(place), "service": True}.get(type_, price_cents > 0)
    assert (set(REQUIRED[type_]) <= built.keys()) is is_complete
    assert bool(built) is is_complete


def test_a_product_has_an_offer_and_its_pictures() -> None:
    pictures = ("https://images.example/1.jpg", "https://images.example/2.jpg")
    product = data(*pictures, price_cents=199_905, category="Bicycles")
    assert product["offers"] == offer("1999.05")
    assert (product["category"], product["image"]) == ("Bicycles", pictures)
    assert "image" not in data(*pictures, type="job", **LOCATED)


def test_a_service_has_its_area_and_hourly_price() -> None:
    services = data(type="service", category="Trades", region="Otago", price_cents=6_500, price_type="per_hour")
    assert (services["@type"], services["serviceType"]) == ("Service", "Trades")
    assert services["areaServed"] == {"@type": "AdministrativeArea", "name": "Otago"}
    assert services["offers"] == offer("65.00", "HUR")


def test_a_rental_is_an_accommodation_with_a_nightly_price() -> None:
    rental = data(type="rental", price_cents=14_500, price_type="per_night", **LOCATED)
    assert rental["@type"] == ["Accommodation", "Product"]
    assert (rental["address"], rental["geo"], rental["offers"]) == (POSTAL_ADDRESS, GEO, offer("145.00", "DAY"))


def test_a_job_has_its_location_and_salary() -> None:
    job = data(type="job", category="Retail", price_cents=2_780, price_type="per_hour", **LOCATED)
    assert (job["@type"], job["title"], job["datePosted"]) == ("JobPosting", "Bicycle", "2026-11-21T06:54:32Z")
    assert job["jobLocation"] == {"@type": "Place", "address": POSTAL_ADDRESS, "geo": GEO}
    assert job["baseSalary"] == {
        "@type": "MonetaryAmount",
        "currency": "NZD",
        "value": {"@type": "QuantitativeValue", "value": 27.8, "unitText": "HOUR"},
    }
    assert job["hiringOrganization"] == {"@type": "Organization", "name": "Alice"}
    assert "baseSalary" not in data(type="job", price_cents=100, price_type="fixed", **LOCATED)


def test_the_description_of_a_job_has_paragraphs() -> None:
    job = data(type="job", content="Two <b>wheels</b>.\nMany\n\nBikes", **LOCATED)
    assert job["description"] == "<p>Two &lt;b&gt;wheels&lt;/b&gt;.<br>Many</p><p>Bikes</p>"


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--", "]]>", "a\u2028b\u2029c & d", '"\\'])
def test_the_script_content_is_escaped(text: str) -> None:
    script = script_content(build_listing(title=text, price_cents=100), "Alice", URL)
    assert not set(script) & set("<>&\u2028\u2029")
    assert json.loads(script)["name"] == text
