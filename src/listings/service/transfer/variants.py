"""Variants of products in the exports of shops, and rows that only have a further picture."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from listings.service.transfer.columns import normalise

Table = list[list[str]]


class _Grouping(NamedTuple):
    key: str  # the column that the rows of a product share
    options: Sequence[str]
    title: str = "title"


_GROUPINGS: Mapping[str, _Grouping] = {
    "Shopify": _Grouping("handle", ("option1 value", "option2 value", "option3 value")),
    "Square": _Grouping("item name", ("variation name",), "item name"),
}
_DASH = " \u2013 "
_DEFAULT_OPTIONS = frozenset({"", "default title", "regular"})
_OWN = ("variant", "option", "sku", "barcode", "variation", "price", "token")  # columns that each variant has itself


class _Columns:
    def __init__(self, header: Sequence[str]) -> None:
        self.indexes = {normalise(name): index for index, name in enumerate(header)}

    def get(self, row: list[str], name: str) -> str:
        index = self.indexes.get(name)
        return row[index].strip() if index is not None and index < len(row) else ""

    def set(self, row: list[str], name: str, text: str) -> None:
        index = self.indexes.get(name)
        if index is not None:
            row += [""] * (index + 1 - len(row))
            row[index] = text

    def inherit(self, row: list[str], first: list[str]) -> None:
        for name in self.indexes:
            if not self.get(row, name) and not name.startswith(_OWN):
                self.set(row, name, self.get(first, name))


def merge_products(shop: str, rows: Table, *, skip_variants: bool) -> bool:
    """Merge the rows of products, the first of which names the columns. Return whether any were changed.

    Further rows of a product give it their pictures, and become empty unless they have an option: then they become
    listings of their own with the texts of the product, or empty with `skip_variants`.
    """
    header = next((row for row in rows if any(row)), [])
    columns, before = _Columns(header), [list(row) for row in rows]
    products = [row for row in rows if row and row is not header]
    if shop == "WooCommerce":
        _merge_variations(columns, products, skip_variants=skip_variants)
    elif shop in _GROUPINGS:
        _merge_groups(columns, _GROUPINGS[shop], products, skip_variants=skip_variants)
    return rows != before


def _merge_groups(columns: _Columns, grouping: _Grouping, rows: Table, *, skip_variants: bool) -> None:
    groups: dict[str, Table] = {}
    for row in rows:
        groups.setdefault(columns.get(row, grouping.key), []).append(row)
    for key, group in groups.items():
        if not key or len(group) == 1:
            continue
        first = group[0]
        title = columns.get(first, grouping.title)
        columns.set(
            first, "image src", "\n".join(dict.fromkeys(filter(None, (columns.get(row, "image src") for row in group))))
        )
        variants = [row for row in group if _name_options(columns, grouping, row) or row is first]
        for row in group[1:]:
            if skip_variants or row not in variants:
                row.clear()
            else:
                columns.set(row, "image src", "")
                columns.inherit(row, first)
        for row in variants if len(variants) > 1 and not skip_variants else ():
            columns.set(row, grouping.title, _DASH.join(filter(None, (title, _name_options(columns, grouping, row)))))


def _name_options(columns: _Columns, grouping: _Grouping, row: list[str]) -> str:
    options = (columns.get(row, name) for name in grouping.options)
    return " / ".join(one for one in options if one.lower() not in _DEFAULT_OPTIONS)


def _merge_variations(columns: _Columns, rows: Table, *, skip_variants: bool) -> None:
    parents: dict[str, list[str]] = {}
    for row in rows:
        parents |= dict.fromkeys((columns.get(row, "sku"), f"id:{columns.get(row, 'id')}"), row)
    used = []
    for row in rows:
        if columns.get(row, "type").lower() != "variation":
            continue
        parent = parents.get(columns.get(row, "parent")) if columns.get(row, "parent") else None
        if skip_variants:
            row.clear()
        elif parent is not None:
            columns.inherit(row, parent)
            used.append(parent)
    for parent in used:
        parent.clear()
