"""Each library is imported by its packages alone; a new package is covered without being listed."""

import sys
from pathlib import Path

import grimp
import pytest

ONLY_IN = {
    "aiosmtplib": {"listings.service"},
    "apsw": {"listings.store"},
    "argon2": {"listings.service"},
    "asyncpg": {"listings.store"},
    "click": {"listings.cli"},
    "hiredis": {"listings.ratelimit"},
    "httptools": {"listings.http"},
    "isal": {"listings.api"},
    "jinja2": {"listings.api.docs", "listings.site"},
    "markdown_it": {"listings.api.docs"},
    "opentelemetry": {"listings.telemetry"},
    "prometheus_client": {"listings.telemetry"},
    "rich": {"listings.cli"},
    "starlette": {"listings.site"},
    "stripe": {"listings.service"},
}
SOURCE = Path(__file__).parent.parent / "src" / "listings"
GRAPH = grimp.build_graph("listings", include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize(("library", "packages"), ONLY_IN.items())
def test_a_library_is_imported_in_its_packages_alone(library: str, packages: set[str]) -> None:
    def find_package(module: str) -> str:
        return next((package for package in packages if f"{module}.".startswith(f"{package}.")), module)

    assert {find_package(module) for module in GRAPH.find_modules_that_directly_import(library)} == packages


def imports_of(package: str) -> set[str]:
    """Return what a package imports, except from itself and the standard library."""
    modules = {module for module in GRAPH.modules if f"{module}.".startswith(f"{package}.")}
    imported = {target for module in modules for target in GRAPH.find_modules_directly_imported_by(module)}
    return imported - modules - set(sys.stdlib_module_names)


def test_conform_imports_errors_alone() -> None:
    assert imports_of("listings.conform") == {"listings.domain.errors"}


def test_the_http_server_imports_errors_and_its_libraries_alone() -> None:
    assert imports_of("listings.http") == {"listings.domain.errors", "httptools", "uvicorn"}


def test_uvicorn_is_imported_in_one_module() -> None:
    assert GRAPH.find_modules_that_directly_import("uvicorn") == {"listings.http.uvicorn_base"}


def test_a_folder_has_at_most_fifteen_modules() -> None:
    folders = {file.parent for file in SOURCE.rglob("*.py")} - {SOURCE / "cli"}
    assert {folder.name: n for folder in folders if (n := len(list(folder.glob("*.py")))) > 15} == {}


def test_the_package_root_has_two_modules_of_its_own() -> None:
    assert {file.stem for file in SOURCE.glob("*.py")} == {"__init__", "__main__", "maintenance", "wiring"}


def test_only_the_services_use_the_store() -> None:
    assert GRAPH.find_modules_that_directly_import("listings.contract.store") == {"listings.service"}
