"""How many bytes a phone loads for a page of pictures."""

from pathlib import Path

from tests.harness import Harness, Person
from tests.pictures import encode, scene
from tests.site.market import get, get_page

COUNT = 24
PIXELS = 384  # of a card on a phone with three pixels per unit
ENCODINGS = {"accept_encoding": "gzip"}


def upload_scenes(harness: Harness, alice: Person) -> list[str]:
    large = scene((1200, 900))
    parts = [large.crop((4 * number, 4 * number, 1000 + 4 * number, 750 + 4 * number)) for number in range(COUNT)]
    replies = [harness.fetch("POST", "/api/v1/images", key=alice.key, body=encode(part, quality=90)) for part in parts]
    return [reply.json()["url"] for reply in replies]


def choose(srcset: str) -> str:
    """Return the URL that a phone loads: that of the smallest picture that is wide enough."""
    candidates = [candidate.split() for candidate in srcset.split(", ")]
    return next(url for url, width in candidates if int(width.removesuffix("w")) >= PIXELS)


def test_a_page_of_24_photos_is_at_most_700_kb_on_a_phone(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        alice = harness.person("alice")
        for url in upload_scenes(harness, alice):
            body = {"title": "Bicycle", "content": "Two wheels.", "images": [url]}
            assert harness.fetch("POST", "/api/v1/listings", key=alice.key, json=body).status == 201
        harness.index_market()
        page = get_page(harness, "/?sort=newest")
        pictures = [choose(str(srcset)) for srcset in page.values("img", "srcset")]
        assert len(set(pictures)) == COUNT
        sizes = [len(get(harness, url).body) for url in pictures]
        assert 15_000 < min(sizes) < max(sizes) <= 40_000
        files = [*page.values("link", "href", rel="stylesheet"), *page.values("link", "href", rel="preload")]
        files += page.values("script", "src")
        others = [len(get(harness, str(path), **ENCODINGS).body) for path in ("/?sort=newest", *files)]
        assert len(others) > 2
        assert sum(sizes) + sum(others) <= 700_000, (sizes, others)
