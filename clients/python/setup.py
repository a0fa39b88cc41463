"""Copy the names of columns, which the server's import has as well, into the package before each build."""

import shutil
from pathlib import Path

from setuptools import setup

_FOLDER = Path(__file__).resolve().parent
_SOURCE = _FOLDER.parent.parent / "src" / "listings" / "service" / "transfer" / "synonyms.json"

if _SOURCE.exists():  # a source distribution has the copy alone
    shutil.copyfile(_SOURCE, _FOLDER / "src" / "listings_client" / "synonyms.json")
setup()
