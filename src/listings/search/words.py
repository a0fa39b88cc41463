"""Split texts into words, and find the stems of English ones.

Case, accents, apostrophes and invisible characters don't matter. Chinese, Japanese and Thai, which have no spaces
between words, are cut into characters and pairs of characters.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

_SLICE = 200  # characters
_MAX_LETTERS = 64  # per word; further ones are ignored
_CACHED_WORDS = 8_192
_MAX_KEPT = 3  # words of up to three letters have no stem

_FOLDED = str.maketrans("øłđð\u0131ħŧŋ", "olddihtn") | str.maketrans({"æ": "ae", "œ": "oe", "þ": "th"})
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u0640\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\u02b9\u02bb-\u02bf\u02c8\ua78b\ua78c]"
)
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed]")
_APOSTROPHE = re.compile("(?<=\\w)['`\u00b4\u2018-\u201b\u2032\u2035\uff07](?=\\w)")
_INCHES = re.compile(r"(?<=\d)(?:-?inch(?:es)?\b|in\b(?!-))")  # "5-in-1" has none
_INCH_SIGNS = re.compile(r"(?<=\d)[\"\u2033\u201d]")
_INCHES_HINT = re.compile(r"\d(?:[\"\u2033\u201d]|-?in)")
_QUOTED = re.compile(r"(?:^|[\s(])[\"\u201c]\w")  # then a quotation mark after a number may be its end
_HYPHENS = re.compile("[\u2010-\u2013]")
_GROUPED = re.compile(r"(?<!\d )(?<![\w.,])([1-9]\d{0,2})((?:[, ]\d{3})+)(?![\w,])")
_MARK_RANGES = (
    (0x0900, 0x0E00),
    (0x0E31, 0x0E4F),
    (0x0EB1, 0x0ECF),
    (0x0F18, 0x10A0),
    (0x17B4, 0x17D4),
    (0x3099, 0x309B),
)
_MARKS = "".join(  # vowels and other signs of Indic scripts and Thai, which are part of a word
    chr(it) for first, end in _MARK_RANGES for it in range(first, end) if unicodedata.category(chr(it))[0] == "M"
)
_LETTER = rf"(?:[^\W\d_]|[{_MARKS}])"
_WORD = re.compile(rf"{_LETTER}+|\d+(?:\.\d+)?")
_ASCII_WORD = re.compile(r"[a-z]+|[0-9]+(?:\.[0-9]+)?")
_CHUNK = re.compile(rf"(?:{_LETTER}|\d)+(?:[-&.](?:{_LETTER}|\d)+)*")
_JOINTS = re.compile("[-&.]")
_EDGES = ".,;:!?()[]{}\"'/*+=<>|~\u2026\u201c\u201d"
_PAIR = 2
_MAX_UNIT = 3  # letters after a number
_COMPOUND_HINT = re.compile(r"[0-9]|[-&.][^\W_]|(?:^|[ \n])[^\W_](?:[ \n]|$)")
_GROUP_HINT = re.compile("[ ,][0-9]{3}")
_DENSE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)
_CHARACTER = re.compile(rf"[^{_MARKS}][{_MARKS}]*")
_NO_VOWEL_PLURAL = re.compile(r"(?:[b-df-hj-np-tv-xz]{2,4}|\d+|[a-z]{1,3}\d+)s")
_IRREGULAR_WORDS = """
calves:calf children:child dwarves:dwarf elves:elf feet:foot geese:goose halves:half hooves:hoof knives:knife
leaves:leaf lice:louse loaves:loaf men:man mens:man mice:mouse oxen:ox people:person scarves:scarf shelves:shelf
teeth:tooth thieves:thief wives:wife wolves:wolf women:woman womens:woman childrens:child potatoes:potato
tomatoes:tomato heroes:hero buses:bus busses:bus gases:gas lenses:lens canvases:canvas atlases:atlas
viruses:virus irises:iris bonuses:bonus cactuses:cactus cacti:cactus walruses:walrus campuses:campus
circuses:circus choruses:chorus octopuses:octopus statuses:status skies:sky taxis:taxi quizzes:quiz axes:axe
ties:tie pies:pie movies:movie cookies:cookie hoodies:hoodie barbies:barbie bookshelves:bookshelf
engineering:engineer wharves:wharf hankies:hanky truckies:truckie housebuses:housebus evs:ev
"""
_IRREGULAR = dict(pair.split(":") for pair in _IRREGULAR_WORDS.split())
_KEPT_WORDS = """
news lens bus gas canvas atlas virus iris bonus cactus walrus campus circus chorus octopus status christmas
series species chassis tennis texas gps sms css dss physics goods shorts tights customs arms spirits organic
organiser organizer animal animated animation universal universe university engine engineer training trainer
housing painting painter bedding wedding building ceiling clothing clothes parking fishing meeting paste
important marketing wing ring king string spring less glass brass class grass cross boss moss plus swiss
operation generation movie cookie hoodie barbie policy police commune communion wander planet sing single tired
barbed
"""
_KEPT = frozenset(_KEPT_WORDS.split())  # words whose stem would be that of another word, or of another meaning
_ES_PLURALS = ("ches", "shes", "sses", "xes")
_SNOWBALL = TextAnalyzerBuilder(Tokenizer.raw()).filter(Filter.stemmer("english")).build()


def normalize(text: str) -> str:
    """Return a text in lower case, without accents, apostrophes within words, invisible characters and digit groups."""
    if text.isascii():
        text = text.lower()
    else:
        # Normalizing sorts runs of combining marks in quadratic time, so it gets slices.
        text = "".join(unicodedata.normalize("NFKD", it) for it in _slice(_IGNORED.sub("", text))).casefold()
        text = _ACCENTS.sub("", text).translate(_FOLDED)
        text = _HYPHENS.sub("-", "".join(unicodedata.normalize("NFC", it) for it in _slice(text)))
    if not text.isascii() or "'" in text or "`" in text:
        text = _APOSTROPHE.sub("", text)
    if _INCHES_HINT.search(text):
        text = _INCHES.sub(" inch ", text)
        text = text if _QUOTED.search(text) else _INCH_SIGNS.sub(" inch ", text)
    return _GROUPED.sub(_join_groups, text) if _GROUP_HINT.search(text) else text


def split(text: str) -> list[str]:
    """Return the words of a string, in their order. A hyphen and a change between letters and digits end a word."""
    return split_normalized(normalize(text))


def split_normalized(text: str) -> list[str]:
    """Return the words of a string that `normalize` has returned."""
    if text.isascii():
        words: list[str] = _ASCII_WORD.findall(text)
    else:
        words = _WORD.findall(text)
        if _DENSE.search(text):
            words = [part for word in words for part in (_cut(word) if is_dense(word) else (word,))]
    return words if len(text) <= _MAX_LETTERS else [word[:_MAX_LETTERS] for word in words]


def split_chunks(normalized: str) -> list[str]:
    """Return the runs of words without a space between them."""
    return _CHUNK.findall(normalized)


def is_dense(word: str) -> bool:
    """Return whether a word is in a script without spaces between words."""
    return _DENSE.search(word) is not None


def is_pair(word: str) -> bool:
    """Return whether a part of a dense word has more than one character."""
    return len(_CHARACTER.findall(word)) > 1


def join(chunk: str) -> str:
    """Return a hyphenated word without its hyphens."""
    return _JOINTS.sub("", chunk)[:_MAX_LETTERS]


def list_joined(normalized: str) -> Iterator[str]:
    """Yield the joined forms of compounds: "e-bike" as "ebike", "PS5" and "PS 5" as "ps5", "T shirt" as "tshirt".

    Neighbouring parts of longer ones are joined, too: "WH-1000XM5" is also found as "XM5".
    """
    if _COMPOUND_HINT.search(normalized) is None:
        return  # most texts
    tokens = normalized.split()
    for number in [number for number, token in enumerate(tokens) if not token.isalpha() or len(token) == 1]:
        token = tokens[number]
        core = token.strip(_EDGES)
        before = tokens[number - 1] if number and token[0] == core[:1] else ""
        after = tokens[number + 1].strip(_EDGES) if number + 1 < len(tokens) and token[-1] == core[-1:] else ""
        if core.isdigit():
            yield from (before + core,) if before.isalpha() else ()
            yield from (core + after,) if after.isalpha() and len(after) <= _MAX_UNIT else ()
        elif len(core) == 1:
            yield from (core + after,) if core.isalpha() and after.isalpha() else ()
        elif not core.isalpha():
            for chunk in (it for it in _CHUNK.findall(core) if not it.isalpha() and not is_dense(it)):
                yield join(chunk)
                parts = split_normalized(chunk)
                yield from map("".join, pairwise(parts)) if len(parts) > _PAIR else ()


@lru_cache(_CACHED_WORDS)
def find_stem(word: str) -> str:
    """Return the stem that the forms of an English word share."""
    word = _IRREGULAR.get(word, word)
    return _find_known(word) or str(_SNOWBALL.analyze(word)[0])


@lru_cache(_CACHED_WORDS)
def find_singular(word: str) -> str:
    """Return the singular of an English noun, by which synonyms are found: "gardener" and "garden" have one stem.

    A singular that ends in "s" may lose it, like its plural.
    """
    word = _IRREGULAR.get(word, word)
    known = _find_known(word)
    if known is not None:
        return known
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(_ES_PLURALS):
        return word[:-2]
    return word if word.endswith("ss") else word.removesuffix("s")


def _find_known(word: str) -> str | None:
    if word in _KEPT or not word.isascii():
        return word
    if (word.endswith("s") and word[:-1] in _KEPT) or _NO_VOWEL_PLURAL.fullmatch(word):
        return word[:-1]
    return word if len(word) <= _MAX_KEPT else None


def _cut(word: str) -> Iterator[str]:
    characters = _CHARACTER.findall(word)
    yield from characters
    yield from map("".join, pairwise(characters))


def _slice(text: str) -> Iterator[str]:
    return (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))


def _join_groups(match: re.Match[str]) -> str:
    return match[1] + re.sub("[, ]", "", match[2])
