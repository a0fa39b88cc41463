"""The wheel: built, installed on its own, and used from ten lines."""

import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import listings_client
from tests.cli.commands import clean_environment
from tests.harness import Person, RunningService
from tests.processes import run_program

PROJECT = Path(__file__).parents[2] / "clients" / "python"
FIRST_LISTING = """
import os
from listings_client import Client

with Client(os.environ["KEY"], os.environ["URL"]) as client:
    bike = client.create(title="Road bike", content="Alloy frame, 56 cm.", price=450)
    print(client.get(bike.id).title)
"""


def run(*command: str | Path, **variables: str) -> str:
    done = run_program(command, env={**clean_environment(), **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).with_name("uv")
    run(uv, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, PROJECT)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_its_data_and_nothing_of_the_server(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        synonyms = archive.read("listings_client/synonyms.json")
    source = PROJECT.parents[1] / "src/listings/service/transfer/synonyms.json"
    assert synonyms == source.read_bytes()
    assert {"listings_client/py.typed", "listings_client/cli.py"} <= names
    assert [name for name in names if not name.startswith("listings_client")] == []
    assert wheel.name.startswith(f"listings_client-{listings_client.__version__}-py3-none-any")


@pytest.mark.slow
def test_the_first_listing_takes_ten_lines(wheel: Path, tmp_path: Path, service: RunningService, alice: Person) -> None:
    """The libraries come from the environment of the tests, which is what a registry would install."""
    assert len(FIRST_LISTING.strip().splitlines()) + 1 <= 10  # with pip install
    venv.create(tmp_path / "venv", system_site_packages=False, with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    run(uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--python", python, wheel)
    libraries = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert {library.partition(">")[0] for library in libraries} == {"click", "httpx2"}
    site = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    (site / "libraries.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")) + "\n")
    assert run(python, "-c", FIRST_LISTING, KEY=alice.key, URL=service.base_url) == "Road bike\n"
    lst = python.with_name("lst")
    assert "Road bike" in run(lst, "list", LISTINGS_API_KEY=alice.key, LISTINGS_URL=service.base_url)
    assert str(tmp_path) in run(python, "-c", "import listings_client; print(listings_client.__file__)")
