"""JSON texts and hostile strings.

The JSON texts are values of an object's field: valid (y_), invalid (n_), or either (i_), as in JSONTestSuite.
"""

import string
from collections.abc import Iterator, Mapping

_DEPTH = 100_000


def build_json_cases() -> dict[str, bytes]:
    """Return the JSON texts by name."""
    cases: dict[str, bytes] = {}
    for prefix, texts in (("y", _generate_valid()), ("n", _generate_invalid()), ("i", _generate_ambiguous())):
        for number, text in enumerate(dict.fromkeys(texts)):
            cases[f"{prefix}_{number:03}_{text[:24]!r}"] = text
    return cases


def _generate_valid() -> Iterator[bytes]:
    for number in ("0", "-0", "1", "-1", "10", "123", "0.1", "-0.5", "1.0", "0.000001", "1e0", "1E1", "1e+2", "1e-2", "0e1",
                   "0E+1", "-1.5e-3", "123456789012345", "9007199254740993", "-9223372036854775808", "1.7976931348623157e308",
                   "5e-324", "0.1e1", "20e1", "-0.0", "-0e-1", "1.00000000000000000000000000000001"):  # fmt: skip
        yield number.encode()
    for text in ("", "a", " ", "\\\\", '\\"', "\\/", "/", "\\b\\f\\n\\r\\t", "\\u0041", "\\u00e9", "\\u20AC", "\\uD83D\\uDE00",
                 "\\ud834\\udd1e", "\\u0000", "\\u001f", "\\u007f", "\\u2028", "\\uFFFF", "\\uFDD0", "\\uDBFF\\uDFFF", "é", "€",
                 "😀", "\x7f", "\u2028", "\ufeff", "\ufdd0", "\U0010ffff", "\u0080", "'", "//", "/*", "{[,]}", "null",
                 "\\\\u0041", "\\u0022", "\\u005C", "a" * 5000, "\u202e", "e\u0301"):  # fmt: skip
        yield f'"{text}"'.encode()
    yield from (
        b"true",
        b"false",
        b"null",
        b"[]",
        b"{}",
        b"[[]]",
        b"[{}]",
        b'{"":0}',
        b'{"a":[]}',
        b"[1,2]",
        b'["a",1,null]',
    )
    yield from (
        b'{"a":1,"a":2}',
        b'{"a":{"b":{"c":[]}}}',
        b"[ 1 , 2 ]",
        b"\t[\n1\r\n]\t",
        b' {"a" : 1 } ',
        b'{"\\u0061":1}',
    )
    yield from (
        b'{"\xc3\xa9":1}',
        b'{"title":1}',
        b"[[],[[]],{}]",
        b"[" * 100 + b"]" * 100,
        b"[0,-0,1e1,true]",
        b"\n\n 1 \n",
    )
    yield from (
        b'{"a":' * 50 + b"1" + b"}" * 50,
        b"[" + b"1," * 999 + b"1]",
        b'{"__proto__":{}}',
        b'["\\u0041\\u0042"]',
    )


def _generate_invalid() -> Iterator[bytes]:
    for number in ("+1", "01", "-01", "00", "1.", ".1", "-.1", "-", "+", ".", "1e", "1e+", "1.e1", "1e1.5", "0x1", "0b1", "0o1",
                   "1_000", "1,5,", "1 2", "--1", "1-", "1+1", "1a", "1e1e1", "0.1.2", "2.e3", "0.e1", "9.e+", "-1x", "- 1",
                   "1.0e", "0e", "0e+", "-012", "-2.", "1eE2", "１", "∞", "1f", "1L", "1/2", "#1", "$1", "1%",
                   "NaN", "-NaN", "nan", "Infinity", "-Infinity", "inf", "Inf", "+Infinity", "1#INF"):  # fmt: skip
        yield number.encode()
    for word in ("True", "False", "None", "NULL", "nul", "tru", "fals", "nulll", "truefalse", "undefined", "yes", "TRUE", "n",
                 "t", "f", "a", "abc", "true1", "@", "*", "&a", "!!str a", "<null>", "\\u0041", "é", "\ufeff1"):  # fmt: skip
        yield word.encode()
    for escape in sorted(set(string.printable[:95]) - set('"\\/bfnrtu')):
        yield f'"\\{escape}"'.encode()
    for escape in ("\\u", "\\u1", "\\u12", "\\u123", "\\u00G0", "\\u-001", "\\u+041", "\\u 041", "\\x41", "\\U00000041",
                   "\\u{41}", "\\uD83D\\u", "\\uD83D\\uD", "\\é", "\\\x00", "\\\n"):  # fmt: skip
        yield f'"{escape}"'.encode()
    for code in range(0x20):
        yield b'"a%cb"' % code
    for code in (0x00, 0x01, 0x08, 0x0B, 0x0C, 0x1F, 0x7F):
        yield b"[%c1]" % code
    for space in ("\u00a0", "\u0085", "\u2028", "\u3000", "\u200b", "\ufeff", "\u2060"):
        yield f"[{space}1]".encode()
    for wrong in (b"\x80", b"\xbf", b"\xc0\x80", b"\xc0\xaf", b"\xc1\xbf", b"\xc2", b"\xc3\x28", b"\xe0\x80\x80", b"\xe0\x80\xaf",
                  b"\xe2\x82", b"\xe2\x28\xa1", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf0\x80\x80\x80",
                  b"\xf0\x9f\x98", b"\xf0\x28\x8c\xbc", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80",
                  b"\xfc\x84\x80\x80\x80\x80", b"\xfe", b"\xff", b"\xff\xfe", b"a\xe9b", b"\xc3\xa9\xa9"):  # fmt: skip
        yield b'"' + wrong + b'"'
        yield b'{"' + wrong + b'":1}'
        yield wrong
    yield from (
        b"",
        b"[",
        b"]",
        b"{",
        b"[1",
        b"[1,",
        b"[,",
        b"[,1]",
        b"[1,]",
        b"[1,,2]",
        b"[1 2]",
        b"[1:2]",
        b"[1;2]",
        b"[1}",
        b"{1]",
    )
    yield from (
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{,"a":1}',
        b'{"a":1,,"b":2}',
        b'{"a" 1}',
        b'{"a":1 "b":2}',
        b"{a:1}",
        b"{'a':1}",
    )
    yield from (
        b"{1:1}",
        b"{null:1}",
        b'{"a"::1}',
        b'{"a":1',
        b'{"a',
        b'{"a":"b',
        b"'a'",
        b'"a',
        b'a"',
        b'"a"b"',
        b'"""a"""',
        b"`a`",
    )
    yield from (
        b"{[]:1}",
        b"{{}:1}",
        b'{"a"=1}',
        b'{"a"=>1}',
        b"(1)",
        b"<1>",
        b"[1]]",
        b"{}}",
        b"[]{}",
        b"1 // a",
        b"/* a */ 1",
        b"# a",
    )
    yield from (
        b"1 /* a */",
        b"-- 1",
        b"[1,...]",
        b"[...[]]",
        b"{...{}}",
        b'"a" "b"',
        b'"a"+"b"',
        b'["a\\"]',
        b'["a',
        b'{"a":tru}',
    )
    yield from (
        b"[" * _DEPTH,
        b'{"a":' * _DEPTH,
        b"[" * _DEPTH + b"]" * _DEPTH,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    )


def _generate_ambiguous() -> Iterator[bytes]:
    for number in ("1e309", "-1e309", "1e99999", "1e-99999", "9" * 400, "-" + "9" * 400, "0." + "1" * 1000, "1" + "0" * 1000,
                   "18446744073709551616", "-9223372036854775809", "1e" + "9" * 100, "0e" + "9" * 100, "1e-" + "9" * 100):  # fmt: skip
        yield number.encode()
    for half in (
        "\\uD800",
        "\\uDFFF",
        "\\uDC00\\uD800",
        "\\uD800a",
        "\\uD800\\u0041",
        "\\ud83d\\ud83d",
        "\\uDBFFx",
        "a\\uDFAAb",
    ):
        yield f'"{half}"'.encode()
        yield f'{{"{half}":1}}'.encode()
    yield from (b"[" * depth + b"]" * depth for depth in (500, 1000, 1100, 2000))


_STRINGS = (
    "undefined", "null", "NULL", "None", "nil", "true", "false", "NaN", "0", "-1", "1/0", "1e309", "0x1", "012", "१२३",
    "1,000.00", "$1.00", "2026-02-30", "; DROP TABLE listings", "' OR '1'='1", "1' OR 1=1 --", '" OR ""="', "'; SELECT pg_sleep(9); --",
    "%s%s%s%n", "%00", "%d", "{0}", "{{7*7}}", "${7*7}", "#{7*7}", "<%= 7*7 %>", "{% debug %}", "$(touch /tmp/x)", "`id`", "| id", "&& id",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "javascript:alert(1)", '"><svg/onload=alert(1)>', "</title><b>", "<!--",
    "]]>", "&lt;b&gt;", "&#0;", "&amp;amp;", "<![CDATA[x]]>", "<?xml version='1.0'?>", "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///'>]>",
    "../../../etc/passwd", "..\\..\\x", "/dev/null", "C:\\CON", "COM1", "file:///etc/passwd", "http://[::1]/", "\\\\host\\share",
    "=1+1", "+1", "-1+1", "@SUM(A1)", "=cmd|' /C calc'!A0", "\t=1+1", "\r=1+1", "a,b", 'a"b', "a;b", "a\tb", "a\nb", "a\r\nb", "a\rb",
    "Set-Cookie: a=b", "x\r\nX-Injected: 1", "x\r\n\r\n<html>", "Scunthorpe", "Ω≈ç√∫˜µ≤≥÷", "åß∂ƒ©˙∆˚¬…æ", "œ∑´®†¥¨ˆøπ“‘", "¡™£¢∞§¶•ªº–≠",
    "田中さんにあげて下さい", "パーティーへ行かないか", "和製漢語", "사회과학원 어학연구소", "울란바토르", "𠜎𠜱𠝹𠱓", "Ⱥ Ⱦ", "İıſK", "ß ẞ ﬀ",
    "ヽ༼ຈل͜ຈ༽ﾉ", "(｡◕ ∀ ◕｡)", "😍", "👾 🙇 💁", "👨‍👩‍👧‍👦", "👋🏽", "🇳🇿 🏴\U000e0067\U000e0062\U000e007f", "1️⃣", "١٢٣", "ثم نفس سقطت", "בְּרֵאשִׁית",
    "הָיְתָהtestالصفحات", "﷽", "ﷺ", "مُنَاقَشَةُ", "\u202etest\u202c", "\u2066test\u2067", "\u2029", "Ṱ̺̺̕o͞ ̷i̲̬͇̪͙n̝̗͕v̟̜̘̦͟o̶̙̰̠kè͚̮̺̪̹̱̤", "˙ɐnbᴉlɐ ɐuƃɐɯ", "𝐓𝐡𝐞 𝔮𝔲𝔦𝔠𝔨", "⒯⒣⒠",
    "ĳ ǅ ŉ", "e\u0301 é", "\u1e9b\u0323", "\ufb01", "\u212b \u00c5", "\u0958", "\u0344", "क्षि", "நி", "ก็", "ཨོཾ", "\u1100\u1161", "ﾞ", "\ufffd", "\ufffc",
    "AND", "OR", "NOT", "NEAR(a b)", "a AND", '"a', "a*", "^a", "title:a", "a NOT b", "{a b}: c", "a:*", "a & !b", "<->", "a <2> b", "'a':1A", "(((", "\\", "\\\\", "\\'", "\\0", "\\x00", "\\u0000", "\\N", "_", "%", "a%b_c", "[a-z]", "E'\\x'", "$1", "$$a$$", ":a", "?",
)  # fmt: skip


def build_naughty_strings() -> list[str]:
    """Return the strings without duplicates."""
    cases = [*_STRINGS, *map(chr, range(0x80)), *(f"a{chr(code)}b" for code in (*range(0x20), *range(0x7F, 0xA1)))]
    cases += [f"a{character}b" for character in _CHARACTERS] + list(_CHARACTERS)
    cases += [chr(plane << 16 | 0xFFFE) + "a" for plane in range(17)] + [
        "a" + chr(plane << 16 | 0xFFFF) for plane in range(17)
    ]
    for size in (99, 100, 101, 254, 255, 256, 4096):
        cases += ["a" * size, "é" * size, "😀" * size, " " * (size - 1) + "a", "a" + "\u0301" * (size - 1)]
    cases += [f" {text} " for text in _STRINGS[:20]] + [text * 3 for text in _STRINGS[60:80]]
    cases += ["\ud800", "a\udfffb", "\udc00\ud800", "\x00", "a\x00", "\x00a", "", " ", "\t\n"]
    return list(dict.fromkeys(cases))


_CHARACTERS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u180e\u2000\u2001\u2002\u2003\u2009\u200a\u200b\u200c\u200d\u200e\u200f\u2028\u2029"
    "\u202a\u202b\u202c\u202d\u202e\u202f\u205f\u2060\u2061\u2064\u2066\u2069\u206a\u206f\u3000\u3164\ufe00\ufe0f\ufeff\uffa0"
    "\ufff9\ufffb\ufffc\ufffd\ufdd0\ufdef\ue000\uf8ff\U000e0001\U000e0020\U000e007f\U000e0100\U000f0000\U0010fffd\U0001d173"
)

WHITE_SPACE = frozenset("\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | set(
    map(chr, range(0x2000, 0x200B))
)
"""The characters with Unicode's White_Space property."""
SEPARATORS = frozenset("\x1c\x1d\x1e\x1f")
"""White space for Python but not for Unicode: a title of only these may count as blank or not."""
MAX_LENGTHS: Mapping[str, int] = {
    "title": 255, "content": 100_000, "category": 100, "location": 255, "region": 100, "district": 100,
}  # fmt: skip
"""Maximum lengths, by decision G2."""


def is_allowed(field: str, text: str) -> bool | None:
    """Return whether a field must accept a string (decision G2); None if it may do either."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text) or len(text) > MAX_LENGTHS[field]:
        return False
    if field not in {"title", "content"}:
        return True
    if set(text) <= WHITE_SPACE:
        return False
    return None if set(text) <= WHITE_SPACE | SEPARATORS else True
