"""The sixteen regions of New Zealand, with the other names and the places that sellers enter as a region."""

import re
from collections.abc import Mapping
from functools import lru_cache

from listings.domain import tokenizer

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "Northland": ("Te Tai Tokerau", "Whangārei", "Far North"),
    "Auckland": ("Tāmaki Makaurau", "Auckland City", "Greater Auckland", "Akl", "Akld"),
    "Waikato": ("Hamilton", "Kirikiriroa", "Taupō", "Coromandel"),
    "Bay of Plenty": ("Te Moana-a-Toi", "Tauranga", "Rotorua", "BOP"),
    "Gisborne": ("Te Tairāwhiti", "Tairāwhiti", "East Coast"),
    "Hawke's Bay": ("Te Matau-a-Māui", "Hawkes Bay", "Napier", "Hastings", "HB"),
    "Taranaki": ("New Plymouth",),
    "Manawatū-Whanganui": ("Manawatū", "Whanganui", "Wanganui", "Manawatū-Wanganui", "Palmerston North", "Palmy"),
    "Wellington": ("Te Whanganui-a-Tara", "Greater Wellington", "Welington", "Lower Hutt", "Wairarapa", "Wgtn", "Wgn"),
    "Tasman": ("Te Tai-o-Aorere", "Golden Bay", "Motueka"),
    "Nelson": ("Whakatū",),
    "Marlborough": ("Te Tauihu-o-te-waka", "Blenheim"),
    "West Coast": ("Te Tai Poutini", "Greymouth", "Westland"),
    "Canterbury": ("Waitaha", "Christchurch", "Ōtautahi", "Timaru", "Chch"),
    "Otago": ("Ōtākou", "Dunedin", "Ōtepoti", "Queenstown", "Central Otago"),
    "Southland": ("Murihiku", "Invercargill"),
}
_CACHE_SIZE = 1_024  # names
_IGNORED = {"region", "nz", "aotearoa"}
_APOSTROPHE = re.compile("['`\u00b4\u02b9\u02bb-\u02bf\u02c8\u2018-\u201b\u2032\ua78c\uff07]")
REGIONS = tuple(_OTHER_NAMES)
"""The names of the regions, from north to south."""


@lru_cache(_CACHE_SIZE)
def fold_region(name: str) -> str:
    """Return the region that a text names, or the text itself if it names none.

    Case, accents, apostrophes, punctuation between words, the word "region" and the country do not matter.
    """
    return _BY_KEY.get(_build_key(name), name)


def _build_key(name: str) -> str:
    words = tokenizer.tokenize(_APOSTROPHE.sub("", name))
    text = " ".join(word for word in words if word not in _IGNORED)
    return text.removesuffix(" new zealand")


_BY_KEY = {_build_key(name): region for region, names in _OTHER_NAMES.items() for name in (region, *names)}
