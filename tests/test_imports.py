"""Each library is imported by its packages alone; a new package is covered without being listed."""

import sys
from graphlib import TopologicalSorter

import grimp

ONLY_IN = {
    "aiosmtplib": {"listings.service"},
    "apsw": {"listings.store"},
    "argon2": {"listings.service"},
    "asyncpg": {"listings.store"},
    "click": {"listings.cli"},
    "hiredis": {"listings.ratelimit"},
    "httptools": {"listings.http"},
    "isal": {"listings.http"},
    "jinja2": {"listings.api.docs", "listings.site"},
    "markdown_it": {"listings.api.docs"},
    "obstore": {"listings.service"},
    "opentelemetry": {"listings.telemetry"},
    "prometheus_client": {"listings.telemetry"},
    "rich": {"listings.cli"},
    "starlette": {"listings.site"},
    "stripe": {"listings.service"},
    "tantivy": {"listings.search"},
}
GRAPH = grimp.build_graph("listings", include_external_packages=True, cache_dir=None)


def test_each_library_is_imported_in_its_packages_alone() -> None:
    def find_package(module: str, packages: set[str]) -> str:
        return next((package for package in packages if f"{module}.".startswith(f"{package}.")), module)

    for library, packages in ONLY_IN.items():
        modules = GRAPH.find_modules_that_directly_import(library)
        assert {find_package(module, packages) for module in modules} == packages, library


def imports_of(package: str) -> set[str]:
    """Return what a package imports, except from itself and the standard library."""
    modules = {module for module in GRAPH.modules if f"{module}.".startswith(f"{package}.")}
    imported = {target for module in modules for target in GRAPH.find_modules_directly_imported_by(module)}
    return imported - modules - set(sys.stdlib_module_names)


def test_the_http_server_imports_errors_queues_and_its_libraries_alone() -> None:
    assert imports_of("listings.http") == {"listings.domain.errors", "listings.queues", "httptools", "isal", "uvicorn"}


def test_uvicorn_is_imported_in_one_module() -> None:
    assert GRAPH.find_modules_that_directly_import("uvicorn") == {"listings.http.uvicorn_base"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports under TYPE_CHECKING count, too. CycleError names the modules."""
    imported = {module: GRAPH.find_modules_directly_imported_by(module) for module in GRAPH.modules}
    TopologicalSorter(imported).prepare()


def test_each_module_can_be_imported_first() -> None:
    """A package runs its `__init__` before each of its modules, so imports there can be a circle for some modules."""
    assert [step for module in sorted(GRAPH.find_descendants("listings")) for step in find_unready(module)] == []


def find_unready(first: str) -> list[str]:
    """Import a module as Python would, and return the imports of modules that are not ready."""
    ready: dict[str, bool] = {}
    found = []

    def load(module: str) -> None:
        package, _, _ = module.rpartition(".")
        if package:
            load(package)
        if module in ready:
            return
        ready[module] = False
        for target in sorted(GRAPH.find_modules_directly_imported_by(module)):
            if not ready.get(target, True):
                found.append(f"{first}: {module} imports {target}")
            load(target)
        ready[module] = True

    load(first)
    return found


def test_only_the_services_use_the_interface_of_the_store() -> None:
    users = {module.split(".")[1] for module in GRAPH.find_modules_that_directly_import("listings.store.store")}
    assert users == {"service", "store", "search"}
    imported = imports_of("listings.service")
    assert {module for module in imported if module.startswith("listings.store")} == {"listings.store.store"}
