"""The release: archives and versions."""

import os
import re
import shutil
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import listings_client
from listings import __version__
from tests.cli.commands import clean_environment
from tests.processes import run_program

HOME = Path(__file__).parent.parent
PROJECT: Any = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))
BUILT_FROM = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "Makefile")


def run(*command: str | Path, folder: Path = HOME, path: str = os.environ["PATH"], umask: int = -1) -> str:
    outcome = run_program(command, cwd=folder, env=clean_environment() | {"PATH": path}, umask=umask)
    assert outcome.returncode == 0, outcome
    return outcome.stdout


def build(folder: Path, umask: int) -> Path:
    """Run `make dist` on a copy of the checkout, and return the folder of the archives."""
    folder.mkdir()
    for name in BUILT_FROM:
        shutil.copy(HOME / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("src", "clients/python"):
        shutil.copytree(HOME / name, folder / name, symlinks=True, ignore=ignored)
    for file in folder.rglob("*"):
        file.chmod(file.stat().st_mode & ~umask)
    tools = f"BIN={Path(sys.executable).parent}"
    command = ("make", "--silent", "--assume-old=dev", "dist", tools, "SOURCE_DATE_EPOCH=1790000000")
    run(*command, folder=folder, umask=umask)
    return folder / "dist"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("release") / "first", umask=0o022)


@pytest.fixture(scope="module")
def wheel(archives: Path) -> Path:
    return archives / f"listings_server-{__version__}-py3-none-any.whl"


@pytest.mark.slow
@pytest.mark.uncovered
def test_a_commit_is_always_built_to_the_same_bytes(archives: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "second", umask=0o077)
    built = {path.name: path.read_bytes() for path in archives.iterdir() if path.name != ".gitignore"}
    assert len(built) == 3
    assert all((again / name).read_bytes() == content for name, content in built.items())


def test_the_archives_contain_the_package_and_its_data(archives: Path, wheel: Path) -> None:
    with ZipFile(wheel) as opened:
        installed = {name for name in opened.namelist() if ".dist-info/" not in name}
    files = {path for path in (HOME / "src").rglob("*") if path.is_file() and "egg-info" not in str(path)}
    present = {str(path.relative_to(HOME / "src")) for path in files if "__pycache__" not in path.parts}
    assert installed == present
    with tarfile.open(next(archives.glob("listings_server-*.tar.gz"))) as archive:
        sources = {name.partition("/src/")[2] for name in archive.getnames() if "egg-info" not in name}
    assert present <= sources


def test_service_and_client_have_one_version() -> None:
    assert listings_client.__version__ == __version__


def find_minors(pattern: str, file: str) -> list[int]:
    """Return the minor versions of Python in the first match of a pattern in a file."""
    found = re.search(pattern, (HOME / file).read_text("utf-8"))
    assert found is not None
    return [int(group) for group in found.groups()]


def test_every_place_names_the_versions_of_python_that_the_tests_passed_on() -> None:
    oldest, newest = find_minors(r"tested on 3\.(\d+) to 3\.(\d+)", "docs/install.md")
    tested = list(range(oldest, newest + 1))
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp3{minor}-*" for minor in tested]
    classifiers = [name for name in PROJECT["project"]["classifiers"] if " 3." in name]
    assert classifiers == [f"Programming Language :: Python :: 3.{minor}" for minor in tested]
    assert find_minors(r'python: \["3\.(\d+)", "3\.(\d+)"\]', ".github/workflows/ci.yml") == [oldest, newest]
    assert find_minors(r"\*\*Python\*\*: .*, from 3\.(\d+)", "docs/upgrading.md") == [oldest]
    assert PROJECT["project"]["requires-python"] == f">=3.{oldest}"
    assert find_minors(r"^FROM python:3\.(\d+)", "Dockerfile")[0] in tested


def check_release(home: Path, tag: str, repository: str) -> str:
    """Return the error of the check that the release workflow begins with."""
    script = str(home / ".ci" / "check-release")
    return run_program([script, tag, repository]).stderr


def test_a_release_needs_the_version_as_tag_a_date_and_the_address(tmp_path: Path) -> None:
    address, tag = PROJECT["project"]["urls"]["Source"], f"v{__version__}"
    for name in (".ci/check-release", "CHANGELOG.md", "pyproject.toml", "src/listings/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HOME / name, tmp_path / name)
    page = tmp_path / "CHANGELOG.md"
    heading = f"## [{__version__}] - "
    undated = re.sub(rf"(?<=^{re.escape(heading)}).*$", "Unreleased", page.read_text("utf-8"), flags=re.MULTILINE)
    page.write_text(undated, "utf-8")
    assert "has no dated section" in check_release(tmp_path, tag, address)
    page.write_text(undated.replace(f"{heading}Unreleased", f"{heading}2026-12-24"), "utf-8")
    assert check_release(tmp_path, tag, address) == ""
    assert "The tag is v9.9.9" in check_release(tmp_path, "v9.9.9", address)
    assert "does not name https://fork.example/a" in check_release(tmp_path, tag, "https://fork.example/a")


def test_the_changelogs_begin_with_this_version_and_link_it() -> None:
    text = (HOME / "CHANGELOG.md").read_text("utf-8")
    version, date = re.findall(r"^## \[(.+)\] - (\d{4}-\d\d-\d\d|Unreleased)$", text, re.MULTILINE)[0]
    assert version == __version__
    assert f"\n[{version}]: {PROJECT['project']['urls']['Source']}/releases/tag/v{version}\n" in text
    guide = (HOME / "src/listings/api/docs/guides/changelog.md").read_text("utf-8")
    assert re.findall(r"^## (.*)$", guide, re.MULTILINE)[0] == f"{version} ({date.lower()})"


def test_release_notes_are_a_section_of_the_changelog_with_absolute_links() -> None:
    notes = run(HOME / ".ci" / "release-notes", __version__)
    assert notes.strip()
    assert "\n## " not in notes
    assert re.search(r"\]\((?!https://)", notes) is None
