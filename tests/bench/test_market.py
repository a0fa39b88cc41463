"""Test the data of the market benchmark."""

from bench.market_data import build_listing

COUNT = 400
LISTINGS = [build_listing(number, COUNT) for number in range(COUNT)]
WORDS = [set(f"{it.title} {it.content}".split()) for it in LISTINGS]


def test_listings_are_reproducible() -> None:
    assert [build_listing(number, COUNT) for number in range(COUNT)] == LISTINGS


def test_even_and_odd_never_occur_together() -> None:
    assert all(len(words & {"even", "odd"}) == 1 for words in WORDS)
    assert [("early" in words, "late" in words) for words in WORDS] == [(n < 200, n >= 200) for n in range(COUNT)]


def test_a_word_has_the_intended_frequency() -> None:
    assert 20 <= sum("tenth" in words for words in WORDS) <= 60


def test_the_first_eighth_has_its_own_prices() -> None:
    prices = [it.price_cents for it in LISTINGS]
    assert min(prices[:50]) > max(prices[50:])
