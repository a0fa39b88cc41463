"""Prose check: find unidiomatic phrases in code, Markdown and templates.

Run `python -m tests.prose [PATHS...]` to list the hits and the rate of each file. Many of the phrases are correct
English on occasion, so only their rate counts. Well-written projects stay below 0.7 hits per 1,000 words.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
HITS_PER_WORD = 2 / 1_000
MIN_BUDGET = 2  # hits that a short page may have

_FOLDERS = ("src", "tests", "bench", "clients/python/src")
_PAGES = (
    "*.md",
    ".github/**/*.md",
    "deploy/**/*.md",
    "docs/**/*.md",
    "src/**/*.md",
    "src/**/*.toml",
    "tests/**/*.md",
    "bench/**/*.md",
    "clients/**/*.md",
)
_TEMPLATES = "src/listings/**/templates/**/*.html"
_TEXTS = "src/**/*.toml"
_PATTERN_FILES = {ROOT / "tests/prose.py", ROOT / "tests/test_prose.py"}  # they quote what the check looks for
_EXCLUDED = _PATTERN_FILES | {ROOT / "docs/specification.md"}  # word for word as given
_COMMENTS_ONLY = (ROOT / "bench/peers/django", ROOT / "bench/peers/fastapi")  # in the style of those frameworks
_QUOTING = ROOT / "tests/specification"  # its cases quote the specification
_MIN_WORDS = 4  # shorter strings are names and labels

_GAP = "·"  # replaces code, so that the words on both sides do not form a phrase
_END = "\0"  # separates pieces

_NOT_A_QUESTION = r"(?![\w\s,'’-]*\?)"  # "What is a cursor?" is a good heading
_CREATED = "account|backup|database|folder|index|key|listing|plan|session|snapshot|token"
_BEFORE_WHAT = "and|as|at|behind|beside|by|for|from|in|is|of|on|than|to|with"
_AFTER_WHO = "asks|comes|does|had|has|holds|is|looks|makes|needs|reads|sends|signs|waits|was|writes"
_AFTER_IS_NO = "better|different|doubt|exception|longer|more|need|one|other|problem|such|way"

# Each phrase with what to write instead. A space matches any white space; "^" is the start of a sentence.
_PHRASES = {
    r"(?:(?:are|be|been|being|is|was|were) told|told (?:as|at|by|of)|tells? of)": "reported, logged, returned, shown",
    r"(?:are|counts?|has|have|is|was|were) no more": "no longer",
    r"no more (?:as|his|it|that|the)": "no longer",
    r"(?:none|nothing) (?:is )?left": "no remaining",
    rf"(?:^|(?:and|by|for|of|to|with) )who (?:{_AFTER_WHO})": "the caller, the client, a seller",
    rf"what (?:are|every|has|have|is|it|of|they|was|comes?|came|waits?|stands?){_NOT_A_QUESTION}": "name the thing",
    rf"(?:^|(?:{_BEFORE_WHAT}) )what (?:an?|the|we|you){_NOT_A_QUESTION}": "name the thing",
    r"^of (?:an?|all|another|duplicate|each|its|many|one|several|the|these|those|three|two|what)": "subject first",
    r"(?<!all\x20)at once": "immediately, in one call, together",
    r"behind (?:an?|another|each|every|it|its|that|the|them|this|those|what)": "after",
    r"beside": "next to, alongside, in addition to",
    r"anew": "again, from scratch",
    r"again and again": "repeatedly",
    r"in (?:the )?place of": "instead of",
    r"as \w+ ha(?:s|ve) it": "as ... defines it",
    r"(?<!connection\x20)(?<!request\x20)(?:are|is|was|were) made": "created, built, generated",
    rf"(?:mak(?:e|es|ing)|made) (?:an?|another|its|new|the) (?:\w+ )?(?:{_CREATED})s?": "create",
    r"(?:are|be|been|is|was|were) kept": "cached, stored, retained, guaranteed",
    r"(?:are|is|was|were) to (?:be|become|do|get|go|have|keep|stop)": "must, should, will",
    r"(?:are|be|been|is|was|were) answered": "returns, responds with, is rejected with",
    r"(?:are|be|been|is|was|were) (?:asked|looked|waited) (?:at|for)": "use the active voice",
    r"heed(?:ed|ing|s)?": "process, respect",
    r"judg(?:e|ed|es|ing)": "validate, decide",
    r"mend(?:ed|ing|s)?": "fix",
    r"whatever (?:comes?|came|happens|had|has|is|it|they|was)": "any, regardless of",
    r"whoever": "the caller, the client, anyone who",
    r"so (?:few|long|many|much)": "n, at most n, for that long",
    r"stands? (?:alone|as|at|before|for|in|on|once|still|there|twice)": "appears, is defined",
    r"that there (?:are|is|was|were)": "name the thing",
    r"(?:that|which) (?:are|is|was|were) (?:not )?there": "that exists, that is missing",
    rf"(?<!here\x20)(?:are|is|was|were) no (?!{_AFTER_IS_NO})\w+": "is not a",
    r"(?:a|the) turns?(?! (?:of|out)\b)": "the write lock",
    r"a text(?=[.,;:)]| (?:and|as|is|of|or|that|which|with)\b)": "a string",
    r"whole numbers?": "an integer",
    r"keys of (?:an?|its|the) (?:body|object|request)": "fields",
    r"words of (?:an?|its|the) (?:listing|query|search|title)": "terms",
    r"the way of (?:an?|each|every|the)": "the request path",
    r"for good(?=[.,;:)]| (?:and|as|by|if|unless|when)\b|\Z)": "permanently",
    r"by program": "through the API",
    r"as whose": "name the owner",
    r"e-mails?": "email",
    r"rehears(?:al|als|e|ed|es|ing)": "dry run",
}


class Piece(NamedTuple):
    """A docstring, comment, string, paragraph or table cell."""

    line: int  # of its first character, from 1
    text: str


class Hit(NamedTuple):
    """A phrase that makes a reader stumble."""

    path: Path
    line: int
    phrase: str
    advice: str

    def __str__(self) -> str:
        return f'{_shorten(self.path)}:{self.line}: "{self.phrase}" ({self.advice})'


class Count(NamedTuple):
    """The number of words in some files, and the hits among them."""

    words: int
    hits: list[Hit]

    @property
    def budget(self) -> int:
        """Return how many hits are allowed."""
        return max(MIN_BUDGET, int(self.words * HITS_PER_WORD))

    @property
    def rate(self) -> float:
        """Return the hits per 1,000 words."""
        return 1_000 * len(self.hits) / max(self.words, 1)


def _shorten(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def _keep_line_breaks(filler: str) -> Callable[[re.Match[str]], str]:
    """Return a replacement for `re.sub` that keeps the line breaks, so that line numbers stay right."""
    return lambda match: filler + "\n" * match[0].count("\n")


def _split(text: str, first_line: int = 1) -> Iterator[Piece]:
    line = first_line
    for part in text.split(_END):
        piece = part.lstrip()
        if piece:
            yield Piece(line + part.count("\n") - piece.count("\n"), piece)
        line += part.count("\n")


_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_CODE_SPAN = re.compile(r"(`+)[^`]+?\1")

# Strings and comments are found without a parser, which is faster and also works on a file with a syntax error.
_TRIPLE = r"""\"{3}(?:[^"\\]++|\\.|"(?!""))*+\"{3}|'{3}(?:[^'\\]++|\\.|'(?!''))*+'{3}"""
_LITERAL = rf"""(?:{_TRIPLE}|"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')"""
_TOKEN = re.compile(
    rf"(?P<strings>{_LITERAL}(?:\s*+[rRbBfFuU]{{0,2}}{_LITERAL})*+)|(?P<comment>#[^\n]*+(?:\n[ \t]*+#[^\n]*+)*+)",
    re.DOTALL,
)
_QUOTES = re.compile(r"""[rRbBfFuU]{0,2}(?P<quote>\"{3}|'{3}|["'])(?P<body>.*)(?P=quote)\Z""", re.DOTALL)
_PART = re.compile(rf"[rRbBfFuU]{{0,2}}{_LITERAL}", re.DOTALL)
_MARKER = re.compile(
    r"^[ \t]*#[!:]?|(?:# *)?(?:noqa(?:: [A-Z0-9]+(?:, [A-Z0-9]+)*)?(?: - )?|type: ignore(?:\[[\w, -]+\])?)",
    re.MULTILINE,
)
_PLACEHOLDER = re.compile(r"\{[^{}\n]*\}|%\([a-z]+\)[a-z]|%[a-z]|\\[a-z]")
_CODE = re.compile(
    r"\b(?:SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|(?:CREATE|ALTER|DROP) [A-Z]+|PRAGMA|ORDER BY|WHERE)\b"  # SQL
    r"|</?[a-z][^<>]*>"  # HTML
    r"|\(\?[:P=!<]|\[\^|\\[dwsSWDbB]|\.\*|\\\."  # regular expressions
)


def split_python(source: str, *, comments_only: bool = False) -> Iterator[Piece]:
    """Yield the comments, docstrings, and strings of at least four words."""
    line, end = 1, 0
    for token in _TOKEN.finditer(source):
        line, end = line + source.count("\n", end, token.start()), token.start()
        if token["comment"]:
            yield from _split(_CODE_SPAN.sub(_GAP, _MARKER.sub("", token["comment"])), line)
        elif not comments_only and not _is_bytes(source, token.start()):
            yield from _split_string(token["strings"], line, is_docstring=_is_docstring(source, token.start()))


def _split_string(strings: str, line: int, *, is_docstring: bool) -> Iterator[Piece]:
    text = _PART.sub(lambda part: _QUOTES.sub(r"\g<body>", part[0]), strings)
    if is_docstring or (_is_sentence(text) and not _CODE.search(text)):
        text = _PLACEHOLDER.sub(_GAP, _CODE_SPAN.sub(_keep_line_breaks(_GAP), text))
        yield from _split(text.replace("\n\n", f"{_END}\n\n"), line)


def _is_sentence(text: str) -> bool:
    words = (word.lstrip("\"'(") for word in _PLACEHOLDER.sub(_GAP, text).split())
    return sum(word[:1].isalpha() for word in words) >= _MIN_WORDS


def _is_bytes(source: str, start: int) -> bool:
    return bool(re.search(r"\b(?:b|br|rb)\Z", source[max(start - 3, 0) : start].lower()))


def _is_docstring(source: str, start: int) -> bool:
    return source.startswith('"""', start) and not source[source.rfind("\n", 0, start) + 1 : start].strip(" r")


_MARKDOWN = (
    (re.compile(r"^([ \t]*)(`{3,}|~{3,})[^\n]*\n.*?^[ \t]*\2[^\n]*$|<!--.*?-->", re.DOTALL | re.MULTILINE), _END),
    (re.compile(r"^[ \t]*>[^\n]*$", re.MULTILINE), _END),  # a quotation
    (_CODE_SPAN, _GAP),
    (re.compile(r"\]\([^)]*\)|\]\[[^\]]*\]|[\[\]]"), ""),  # links keep their text
    (re.compile(r"\bhttps?://\S+|</?[a-z][^<>]*>"), _GAP),
    (re.compile(r"^\|[-:| ]+\|[ \t]*$|\||^[ \t]*(?:[-*+]|\d+\.|#+)[ \t]|\n(?=[ \t]*\n)", re.MULTILINE), _END),
    (re.compile(r"\*+|\b_+|_+\b"), ""),  # emphasis
)


def split_markdown(source: str) -> Iterator[Piece]:
    """Yield the paragraphs, headings, list items and table cells, without code and quotations."""
    for pattern, filler in _MARKDOWN:
        source = pattern.sub(_keep_line_breaks(filler), source)
    return _split(source)


_BLOCK = re.compile(r"<(script|style|pre|code|svg)\b.*?</\1>|<!--.*?-->", re.DOTALL)
_INLINE = re.compile(r"</?(?:a|abbr|b|bdi|em|i|kbd|q|s|small|span|strong|sub|sup|time|u)\b[^<>]*>")
_TAG = re.compile(r"<[!/]?[a-z][^<>]*>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r'\b(?:alt|aria-label|content|placeholder|title|value)="([^"]*)"')
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


def split_template(source: str) -> Iterator[Piece]:
    """Yield the visible text, long strings in expressions, and comments."""
    source = re.sub(r"\{#|#\}", _END, source)
    source = _EXPRESSION.sub(lambda found: _extract_sentences(r'"([^"\n]*)"', found[0], _GAP), source)
    source = _BLOCK.sub(_keep_line_breaks(_GAP), source)
    source = _INLINE.sub(lambda tag: _extract_sentences(_ATTRIBUTE, tag[0], ""), source)
    return _split(_TAG.sub(lambda tag: _extract_sentences(_ATTRIBUTE, tag[0], _END), source))


def _extract_sentences(pattern: str | re.Pattern[str], code: str, filler: str) -> str:
    """Return the sentences in a tag or expression, or the filler, with the line breaks of the code."""
    texts = [text for text in re.findall(pattern, code) if _is_sentence(text)]
    return (_END + _END.join(texts) + _END if texts else filler) + "\n" * code.count("\n")


_SPLITTERS: dict[str, Callable[[str], Iterator[Piece]]] = {
    ".html": split_template,
    ".md": split_markdown,
    ".py": split_python,
    ".toml": split_python,  # comments and strings are written alike
}


_QUOTATION = re.compile(r"^@sentence\(.*?\)$", re.DOTALL | re.MULTILINE)


def _split_file(path: Path) -> Iterator[Piece]:
    source = path.read_text("utf-8")
    if path.is_relative_to(_QUOTING):
        source = _QUOTATION.sub(_keep_line_breaks(""), source)
    if any(path.is_relative_to(folder) for folder in _COMMENTS_ONLY):
        return split_python(source, comments_only=True)
    return _SPLITTERS[path.suffix](source)


def _compile(phrase: str) -> re.Pattern[str]:
    with_start = phrase.replace("^", r"(?:\A|(?<=[.;:!?(]\s))")
    return re.compile(rf"\b{with_start}\b".replace(" ", r"\s+"), re.IGNORECASE)


_PATTERNS = [(_compile(phrase), advice) for phrase, advice in _PHRASES.items()]


def find(path: Path, piece: Piece) -> Iterator[Hit]:
    """Yield the hits of a piece in order; of two that overlap only the first."""
    matches = [(match.span(), advice) for pattern, advice in _PATTERNS for match in pattern.finditer(piece.text)]
    last = 0
    for (start, end), advice in sorted(matches):
        if start >= last:
            line = piece.line + piece.text.count("\n", 0, start)
            yield Hit(path, line, " ".join(piece.text[start:end].split()), advice)
            last = end


@cache
def count(path: Path) -> Count:
    pieces = list(_split_file(path))
    hits = sorted(hit for piece in pieces for hit in find(path, piece))
    return Count(sum(len(_WORD.findall(piece.text)) for piece in pieces), hits)


def count_total(paths: Iterable[Path]) -> Count:
    """Return the words and the hits of all files together."""
    counts = [count(path) for path in paths]
    return Count(sum(each.words for each in counts), [hit for each in counts for hit in each.hits])


def group_by_budget() -> dict[str, list[Path]]:
    """Return the files that share a budget: those of each folder, each page, and each template."""
    shared = {folder: _select_checked(ROOT.joinpath(folder).rglob("*.py")) for folder in _FOLDERS}
    shared["docs"] = _select_checked(ROOT.joinpath("docs").rglob("*.md"))
    single = [path for pattern in (*_PAGES, _TEXTS, _TEMPLATES) for path in _select_checked(ROOT.glob(pattern))]
    return shared | {_shorten(path).as_posix(): [path] for path in single}


def _select_checked(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if path.suffix in _SPLITTERS and path not in _EXCLUDED)


def _expand(path: Path) -> list[Path]:
    inside = {each for paths in group_by_budget().values() for each in paths if each.is_relative_to(path)}
    return sorted(inside) if path.is_dir() else _select_checked([path])


def _print(name: str, counted: Count) -> bool:
    """Print the rate; return whether it is within the budget."""
    is_within = len(counted.hits) <= counted.budget
    summary = f"{len(counted.hits)} hits in {counted.words:,} words, {counted.rate:.1f} per 1,000"
    sys.stdout.write(f"{name}: {summary}{'' if is_within else f', allowed: {counted.budget} hits'}\n")
    return is_within


def main(arguments: list[str]) -> int:
    """Print the hits and the rate of each given file, or of each bucket; return 1 if one is over its budget."""
    chosen = [path for argument in arguments for path in _expand(Path(argument).resolve())]
    groups = {str(_shorten(path)): [path] for path in chosen} if arguments else group_by_budget()
    counts = {name: count_total(paths) for name, paths in groups.items()}
    for hit in dict.fromkeys(hit for counted in counts.values() for hit in counted.hits):
        sys.stdout.write(f"{hit}\n")
    within = [_print(name, counted) for name, counted in counts.items()]
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
