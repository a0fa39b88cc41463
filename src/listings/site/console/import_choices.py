"""The choices of a seller before an import, as fields of a form.

Hidden fields have what the preview shows. The visible ones, whose names begin with "choose-", ask for another preview.
"""

from typing import NamedTuple, get_args

from starlette.datastructures import FormData

from listings.domain.fields import FIELDS
from listings.service.transfer.columns import IGNORED, ReadOptions
from listings.service.transfer.importer import IdChoice
from listings.service.transfer.rows import COLUMNS
from listings.site.console.guards import get_text
from listings.site.console.upload import Upload

_MAPPING = "map:"
_MAX_COLUMNS = 80  # that are offered: a form has at most 300 fields


class Choices(NamedTuple):
    """The choices for an import."""

    ids: IdChoice = "auto"
    overwrite: bool = False
    read_options: ReadOptions = ReadOptions()

    @property
    def fields(self) -> dict[str, str]:
        """The hidden fields of a form, for the choices that differ from the default."""
        mapping, keep_text, skip_variants, _ = self.read_options
        chosen = {"ids": self.ids if self.ids != "auto" else "", "conflicts": "overwrite" if self.overwrite else ""}
        chosen |= {"text": "keep" if keep_text else "", "variants": "first" if skip_variants else ""}
        chosen |= {f"{_MAPPING}{name}": column for name, column in mapping.items()}
        return {name: value for name, value in chosen.items() if value}


class ColumnChoice(NamedTuple):
    """A column of a file: its name, the label of its field, and whether that is known without a choice."""

    name: str
    label: str
    is_known: bool


COLUMN_LABELS = {name: field.label for name, field in FIELDS.items()} | {"id": "ID", IGNORED: "Do not import"}


def read_choices(form: FormData) -> Choices:
    """Return the choices in a form. Invalid ones count as not chosen."""
    ids: IdChoice = next((one for one in get_args(IdChoice) if one == _get(form, "ids")), "auto")
    mapping = {}
    for prefix in (_MAPPING, f"choose-{_MAPPING}"):
        for name, value in form.multi_items():
            if name.startswith(prefix) and value in (*COLUMNS, IGNORED):
                mapping[name.removeprefix(prefix)] = str(value)
    options = ReadOptions(mapping, _get(form, "text") == "keep", _get(form, "variants") == "first")
    return Choices(ids, _get(form, "conflicts") == "overwrite", options)


def _get(form: FormData, name: str) -> str:
    return get_text(form, f"choose-{name}") or get_text(form, name)


def describe_columns(upload: Upload) -> list[ColumnChoice]:
    """Return the columns of a file that a seller may assign."""
    if upload.table is None:
        return []
    header = upload.table.header
    known = {*COLUMNS, IGNORED, "reason"}
    return [
        ColumnChoice(name, COLUMN_LABELS.get(column if column in known else IGNORED, column), column in known)
        for name, column in zip(header.names[:_MAX_COLUMNS], header.columns, strict=False)
        if name
    ]
