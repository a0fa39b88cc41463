"""The revisions of an account."""

from typing import NamedTuple


class Revisions(NamedTuple):
    """The revision of an account, and its edit revision: the id of its last change set.

    Views of its listings raise only the former.
    """

    revision: int
    edit_revision: int
