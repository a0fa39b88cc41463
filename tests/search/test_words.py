"""Words and terms of texts."""

import pytest

from listings.search.analysis import find_positions, fold_category, list_terms, read_words
from listings.search.synonyms import IN_LISTINGS
from listings.search.words import find_singular, find_stem, normalize, split

ES_ENDINGS = {"ch", "sh", "ss", "ax", "ex", "ox"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Two-seat canoe", ["two", "seat", "canoe"]),
        ("PS5, 10kg", ["ps", "5", "10", "kg"]),
        ("1,000 or 10 000 km", ["1000", "or", "10000", "km"]),
        ("021 555 123", ["021", "555", "123"]),
        ("2.5L", ["2.5", "l"]),
        ("Hawke’s ʻOhana", ["hawkes", "ohana"]),
        ("fri\u200bd\u00adge", ["fridge"]),
        ("Bike™ ﬁne", ["biketm", "fine"]),
        ("自転車", ["自", "転", "車", "自転", "転車"]),
        ('55" TV, 27-inch, 9in, 3 inches', ["55", "inch", "tv", "27", "inch", "9", "inch", "3", "inches"]),
        ('5-in-1, 3 in 1, the "Model 55", 9in', ["5", "in", "1", "3", "in", "1", "the", "model", "55", "9", "inch"]),
        ("", []),
        ("*?!", []),
    ],
)
def test_a_text_is_split_into_words(text: str, words: list[str]) -> None:
    assert split(text) == words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("knives", "knife"),
        ("lenses", "lens"),
        ("tvs", "tv"),
        ("batteries", "battery"),
        ("90s", "90"),
        ("wings", "wing"),
    ],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert find_stem(one) == find_stem(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("news", "new"), ("gps", "gp"), ("lens", "len"), ("organic", "organ"), ("training", "train"), ("ring", "r")],
)
def test_different_words_have_different_stems(one: str, other: str) -> None:
    assert find_stem(one) != find_stem(other)


@pytest.mark.parametrize(
    ("plural", "singular"),
    [
        ("couches", "couch"),
        ("batteries", "battery"),
        ("shoes", "shoe"),
        ("glasses", "glass"),
        ("tvs", "tv"),
        ("men", "man"),
        ("chassis", "chassis"),
        ("gardening", "gardening"),
        ("gardeners", "gardener"),
    ],
)
def test_only_the_singular_and_the_plural_of_a_word_have_its_synonyms(plural: str, singular: str) -> None:
    assert find_singular(plural) == find_singular(singular) == singular


def test_the_plurals_of_all_synonyms_are_found() -> None:
    for word in IN_LISTINGS.words:
        if word.isascii() and word.isalpha() and len(word) > 1:
            ending = "ies" if word[-1] == "y" and word[-2] not in "aeiou" else "es" if word[-2:] in ES_ENDINGS else "s"
            plural = (word[:-1] if ending == "ies" else word) + ending
            assert IN_LISTINGS.words[find_singular(plural)] == IN_LISTINGS.words[word]


def test_phrases_of_synonyms_are_found_with_plurals_of_their_first_words() -> None:
    for first, phrases in IN_LISTINGS.phrases.items():
        for phrase, name in phrases:
            if first.isalpha() and find_singular(f"{first}s") == first:
                assert name in list_terms(" ".join((f"{first}s", *phrase[1:]))), phrase


def test_a_run_of_combining_marks_takes_linear_time() -> None:
    assert normalize("a" + "\u0301" * 100_000) == "a"


def test_terms_have_no_spaces_of_any_kind() -> None:
    text = "a\u00a0b\u2003c\u2028d\u3000e\x1ff\x85g"
    assert set(" ".join(list_terms(text)).split()) >= set("abcdefg")


def test_a_search_has_at_most_twenty_words_and_no_function_words() -> None:
    assert [word.text for word in read_words("the bike for a friend")] == ["bike", "friend"]
    assert [word.text for word in read_words("to the")] == ["to", "the"]
    assert len(read_words(" ".join(f"x{chr(97 + number)}" for number in range(26)))) == 20


def test_neighbours_are_also_joined() -> None:
    lawn, mower = read_words("lawn mower")
    assert lawn.joined == mower.joined == ("lawnmower",)
    assert lawn.classes == mower.classes


def test_categories_of_one_class_are_one() -> None:
    assert len({fold_category(it) for it in ("Bikes", "bike", "BICYCLES", "Bicycle", "Push bikes")}) == 1
    assert fold_category("Bach") == fold_category("Holiday homes")
    assert fold_category("Cars") != fold_category("Vehicles")
    assert fold_category("★") == "★"


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Steel bicycles", "bike", ["bicycles"]),
        ("Bosch e-bike", "ebike", ["e-bike"]),
        ("Two-person tent", "tents", ["tent"]),
        ("Mānuka honey", "manuka", ["Mānuka"]),
        ("Hawke’s Bay", "hawkes", ["Hawke’s"]),
        ("Campfire", "camp", ["Campfire"]),
        ("News", "new", ["News"]),
        ("Lamp", "bike", []),
    ],
)
def test_the_words_of_a_search_are_found_in_a_text(text: str, query: str, marked: list[str]) -> None:
    assert [text[start:end] for start, end in find_positions(text, read_words(query))] == marked
