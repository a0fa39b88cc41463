"""The market that searches are measured in."""

from bench.market_data import listing

COUNT = 400
LISTINGS = [listing(number, COUNT) for number in range(COUNT)]
WORDS = [set(f"{it.title} {it.content}".split()) for it in LISTINGS]


def test_a_listing_is_the_same_whenever_it_is_asked_for() -> None:
    assert [listing(number, COUNT) for number in range(COUNT)] == LISTINGS


def test_words_that_are_to_never_meet_never_do() -> None:
    assert all(len(words & {"even", "odd"}) == 1 for words in WORDS)
    assert [("early" in words, "late" in words) for words in WORDS] == [(n < 200, n >= 200) for n in range(COUNT)]


def test_about_a_tenth_of_all_have_the_tenths_word() -> None:
    assert 20 <= sum("tenth" in words for words in WORDS) <= 60


def test_the_first_eighth_has_prices_of_its_own() -> None:
    prices = [it.price_cents for it in LISTINGS]
    assert min(prices[:50]) > max(prices[50:])
