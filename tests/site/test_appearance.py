"""The look of the pages: contrast of the colours, the brand and the drawings."""

import re
from pathlib import Path

import pytest

from listings.cli.demo import read_sellers
from listings.domain import fields
from listings.site import assets
from tests.harness import Harness
from tests.site.market import create, get, get_page

STATIC = Path(assets.__file__).parent / "static"
DEMO = STATIC.parent / "pictures" / "demo"
CSS = "\n".join(STATIC.joinpath(name).read_text("utf-8") for name in ("base.css", "site.css", "console.css"))
TEXT, EDGE = 4.5, 3.0  # WCAG 2.2, 1.4.3 and 1.4.11
TEXTS = (
    *(("ink", ground) for ground in ("paper", "card", "tint", *(f"art-{number}" for number in range(1, 7)))),
    *(("soft", ground) for ground in ("paper", "card")),
    *(("accent", ground) for ground in ("paper", "card")),
    *(("accent-strong", ground) for ground in ("paper", "card", "tint")),
    *(("danger", ground) for ground in ("paper", "card", "danger-tint")),
    *(("on-accent", "accent"), ("on-accent", "accent-strong"), ("on-hero", "hero"), ("on-new", "new")),
    *(("good", "good-tint"), ("calm", "calm-tint")),
)
EDGES = (*((edge, ground) for edge in ("edge", "focus") for ground in ("paper", "card")), ("on-hero", "hero"))


def read_tokens(scheme: str) -> dict[str, str]:
    """Return the colours of a scheme. Dark ones replace light ones."""
    dark = re.findall(r"@media \(prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}", CSS, re.DOTALL)
    light = re.findall(r"^:root \{(.*?)\}", CSS, re.DOTALL | re.MULTILINE)
    blocks = light + (dark if scheme == "dark" else [])
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", "".join(blocks)))


def measure_luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def measure_contrast(*colours: str) -> float:
    darker, lighter = sorted(map(measure_luminance, colours))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_reference_has_the_header_and_the_style_of_the_site(harness: Harness) -> None:
    pages = [get(harness, path).body.decode() for path in ("/", "/docs")]
    before_menu = [re.findall(r"(?s)<header.*?(?=<nav)", re.sub("<img[^>]*>", "", page)) for page in pages]
    assert before_menu[0] == before_menu[1]
    base = STATIC.joinpath("base.css").read_bytes()
    assert base.decode() in get(harness, "/docs/reference.css").body.decode()
    assert base.splitlines()[-1] in assets._assets()["site.css"].content  # noqa: SLF001 - its URL has a digest


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_pair_of_colours_has_enough_contrast(scheme: str) -> None:
    tokens = read_tokens(scheme)
    required = {**dict.fromkeys(TEXTS, TEXT), **dict.fromkeys(EDGES, EDGE)}
    found = {pair: measure_contrast(tokens[pair[0]], tokens[pair[1]]) for pair in required}
    assert {pair: ratio for pair, ratio in found.items() if ratio < required[pair]} == {}


def test_the_demos_listings_have_the_pictures_of_the_package(harness: Harness) -> None:
    listings = [listing for seller in read_sellers() for listing in seller.listings]
    assert 60 <= len(listings) <= 100
    assert [fields.parse_new_listing(listing, strict=False)[1] for listing in listings] == [[]] * len(listings)
    pictures = {picture for listing in listings for picture in listing.get("images", [])}
    files = {name for url in pictures for name in (f"{url[:-5]}-400.webp", url)}
    assert files == {f"/static/demo/{file.name}" for file in DEMO.iterdir()}
    assert sum(file.stat().st_size for file in DEMO.iterdir()) <= 1_200_000
    sent = get(harness, "/static/demo/table-400.webp")
    assert (sent.status, sent.headers["content-type"]) == (200, "image/webp")
    assert get(harness, "/static/demo/nothing.webp").status == 404


def test_a_picture_of_the_demo_is_shown(harness: Harness) -> None:
    listing_id = create(harness, harness.person("alice"), images=["/static/demo/table.webp"])
    page = get_page(harness, f"/listings/{listing_id}")
    assert page.values("img", "src", width="800", height="600") == ["/static/demo/table.webp"]
    assert page.values("meta", "content", property="og:image") == ["http://market.example/static/demo/table.webp"]
    card = get_page(harness, "/")
    assert card.values("img", "src", width="400") == ["/static/demo/table-400.webp"]
    srcset = "/static/demo/table-400.webp 400w, /static/demo/table.webp 800w"
    assert card.values("img", "srcset", width="400") == [srcset]


def test_the_pages_show_the_brand(tmp_path: Path) -> None:
    logo = tmp_path / "logo.svg"
    logo.write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', "utf-8")
    links = "Terms=https://market.example/terms, About us=https://market.example/about"
    brand = {"market_name": "Tāone", "market_tagline": "Near <you>", "market_logo": str(logo), "market_links": links}
    with Harness(tmp_path, contact="help@market.example", **brand) as harness:
        page = get_page(harness, "/")
        sent = get(harness, "/logo")
        assert (sent.headers["content-type"], sent.body) == ("image/svg+xml; charset=utf-8", logo.read_bytes())
        guides = [get_page(harness, path) for path in ("/docs", "/docs/quick-start")]
        problem = get_page(harness, "/nothing", 404)
    assert "Tāone" in problem.text
    assert "Need help? Contact help@market.example" in problem.text
    assert {"Near <you>", "Terms", "About us"} <= set(page.texts)
    assert {"mailto:help@market.example", "https://market.example/terms"} <= set(page.values("a", "href"))
    assert page.values("img", "src", width="32") == ["/logo"]
    for documentation in guides:
        assert documentation.values("img", "src", width="32") == ["/logo"]
        assert {"Tāone", "Terms", "About us"} <= set(documentation.texts)
        assert "mailto:help@market.example" in documentation.values("a", "href")


@pytest.mark.parametrize(("sign_up", "links"), [("on", ["/sign-up", "/sign-in"]), ("off", ["/sign-in"])])
def test_the_documentation_has_the_header_of_the_market(tmp_path: Path, sign_up: str, links: list[str]) -> None:
    with Harness(tmp_path, sign_up=sign_up) as harness:
        documentation = get_page(harness, "/docs")
        assert get(harness, "/logo").body == STATIC.joinpath("icon.svg").read_bytes()
    assert documentation.values("img", "src", width="32") == ["/logo"]
    assert [link for link in documentation.values("a", "href") if link and link.startswith("/sign")] == links


def test_the_home_page_shows_rails_that_are_filled(harness: Harness) -> None:
    alice, bob = harness.person("alice"), harness.person("bob")
    for owner in (alice, bob) * 2:
        create(harness, owner, type="rental", category="Baches", region="Otago")
    create(harness, alice, type="job")
    page = get_page(harness, "/")
    headings = [text for text in page.texts if text in {"Just listed", "Up to $50", "Places to stay", "Latest jobs"}]
    assert list(dict.fromkeys(headings)) == ["Just listed", "Places to stay"]
    assert {"/?category=Baches", "/?type=rental", "/?sort=newest"} <= set(page.values("a", "href"))
    assert "4 listings" in page.text
