"""Generate clients from the served OpenAPI document, compile them, and run a life cycle with each: `make clients`.

It also runs the samples of the guides in Go and JavaScript. The programs are in `clients/`. Everything that is
generated goes to `.clients/`, which `make clients` prepares.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import httpx2

from listings.api.docs.page import list_titles
from tests.guide_samples import run_samples
from tests.harness import RunningService

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "clients"
WORK = ROOT / ".clients"
DOCUMENT = WORK / "openapi.json"
NODE_PROGRAMS = WORK / "node_modules" / ".bin"
BASE_URL = "https://market.example"
DEBIAN_GO_PACKAGES = "/usr/share/gocode"
DEBIAN_PHP_PACKAGES = "/usr/share/php"
DEBIAN_ANNOTATIONS = "/usr/share/java/geronimo-annotation-1.3-spec.jar"
ONLY_SOURCES = (
    "--global-property=apis,models,supportingFiles,apiDocs=false,modelDocs=false,apiTests=false,modelTests=false"
)


def run(*command: str | Path, folder: Path = WORK, variables: Mapping[str, str] | None = None) -> None:
    """Run a command quietly. Raises SystemExit with its output if it fails."""
    environment = {**os.environ, "PATH": f"{WORK}/venv/bin:{NODE_PROGRAMS}:{os.environ['PATH']}", **(variables or {})}
    completed = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if completed.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{completed.stdout}")


def lint(_people: dict[str, str]) -> None:
    """Lint the document. A warning counts as a failure."""
    run("spectral", "lint", DOCUMENT, "--ruleset", PROGRAMS / "spectral.yaml", "--fail-severity=hint")
    run("redocly", "lint", DOCUMENT, "--config", PROGRAMS / "redocly.yaml")


def check_go(people: dict[str, str]) -> None:
    """Run openapi-generator for Go, with Debian's package of the one library that it imports."""
    source = WORK / "go" / "src"
    options = "--additional-properties=packageName=listings,withGoMod=false"
    run(
        "openapi-generator-cli",
        "generate",
        "-g",
        "go",
        "-i",
        DOCUMENT,
        "-o",
        source / "listings",
        options,
        ONLY_SOURCES,
    )
    path, cache = f"{WORK}/go:{DEBIAN_GO_PACKAGES}", f"{WORK}/go/cache"
    go = {"GO111MODULE": "off", "GOFLAGS": "", "GOPATH": path, "GOCACHE": cache}
    run("go", "vet", "-unreachable=false", PROGRAMS / "go" / "main.go", variables=go)
    run("go", "run", PROGRAMS / "go" / "main.go", variables=go | people)


def check_java(people: dict[str, str]) -> None:
    """Run openapi-generator for Java, with the libraries in its own jar and Debian's package of annotations."""
    folder = WORK / "java"
    options = (
        "--additional-properties=openApiNullable=false,useJakartaEe=false,hideGenerationTimestamp=true,"
        "invokerPackage=listings,apiPackage=listings.api,modelPackage=listings.model"
    )
    generate = ("openapi-generator-cli", "generate", "-g", "java", "--library=native", "-i", DOCUMENT, "-o", folder)
    run(*generate, options, ONLY_SOURCES)
    (jar,) = (WORK / "venv" / "lib").glob("python3.*/site-packages/openapi_generator_cli/openapi-generator.jar")
    path = f"{jar}:{DEBIAN_ANNOTATIONS}:{folder}/classes"
    sources = [*(folder / "src" / "main").rglob("*.java"), PROGRAMS / "java" / "Main.java"]
    run("javac", "-nowarn", "-cp", path, "-d", folder / "classes", *sources)
    run("java", "-cp", path, "Main", variables=people)


def generate(language: str, folder: Path, options: str) -> None:
    arguments = ("-g", language, "-i", DOCUMENT, "-o", folder, f"--additional-properties={options}")
    run("openapi-generator-cli", "generate", *arguments, ONLY_SOURCES)


def check_php(people: dict[str, str]) -> None:
    """Run openapi-generator for PHP, with Debian's package of Guzzle."""
    generate("php", WORK / "php", "invokerPackage=Shop,srcBasePath=lib")
    path = f"include_path={DEBIAN_PHP_PACKAGES}"
    run("php", "-d", path, PROGRAMS / "php" / "main.php", variables={"CLIENT": f"{WORK}/php"} | people)


def check_ruby(people: dict[str, str]) -> None:
    """Run openapi-generator for Ruby, with Debian's package of Typhoeus."""
    generate("ruby", WORK / "ruby", "gemName=shop_client,moduleName=Shop")
    run("ruby", "-I", WORK / "ruby" / "lib", PROGRAMS / "ruby" / "main.rb", variables=people)


def check_others(_people: dict[str, str]) -> None:
    """Generate clients in the languages that are not run here."""
    for language in ("csharp", "kotlin", "rust"):
        generate(language, WORK / language, "hideGenerationTimestamp=true")
        assert list((WORK / language).rglob("*BatchResult*")) or list((WORK / language).rglob("batch_result*"))


def check_attrs(people: dict[str, str]) -> None:
    folder = WORK / "attrs"
    folder.mkdir()
    run("openapi-python-client", "generate", "--path", DOCUMENT, "--meta=none", "--output-path", folder / "generated")
    check_python(folder, "attrs_client.py", people)


def check_pydantic(people: dict[str, str]) -> None:
    """Run datamodel-code-generator."""
    folder = WORK / "pydantic"
    folder.mkdir()
    kind = ("--output-model-type=pydantic_v2.BaseModel", "--use-annotated")
    run("datamodel-codegen", "--input", DOCUMENT, "--input-file-type=openapi", *kind, "--output", folder / "models.py")
    check_python(folder, "pydantic_client.py", people)


def check_mcp(_people: dict[str, str]) -> None:
    """Run FastMCP: an MCP server from the document, each tool of which is called, more often than the limit allows."""
    with tempfile.TemporaryDirectory() as folder, RunningService(Path(folder), rate_limit="0") as running:
        variables = {"LISTINGS_URL": running.base_url, "ALICE_KEY": running.cast().alice.key, "DOCUMENT": str(DOCUMENT)}
        run("python", PROGRAMS / "python_generated" / "mcp_server.py", variables=variables)


def check_python(folder: Path, program: str, people: dict[str, str]) -> None:
    path = {"MYPYPATH": str(folder), "PYTHONPATH": str(folder)}
    checker = [sys.executable, "-m", "mypy", "--config-file=", "--strict", f"--cache-dir={WORK}/mypy"]
    file = PROGRAMS / "python_generated" / program
    run(*checker, f"--python-executable={WORK}/venv/bin/python", file, variables=path)
    run("python", file, variables=path | people)


def check_typescript(people: dict[str, str]) -> None:
    """Run openapi-typescript and openapi-fetch."""
    folder = WORK / "typescript"
    shutil.copytree(PROGRAMS / "typescript", folder)
    run("openapi-typescript", DOCUMENT, "--output", folder / "schema.d.ts")
    run("tsc", "--project", folder)
    run("node", folder / "out" / "main.js", variables=people)


def check_guides(_people: dict[str, str]) -> None:
    """Run the samples of the guides in the languages that `make test` does not need."""
    go = {"GO111MODULE": "off", "GOFLAGS": "", "GOCACHE": f"{WORK}/go/cache"}
    for name in list_titles():
        with tempfile.TemporaryDirectory() as folder:
            run_samples(name, Path(folder), {"go", "javascript", "php"}, go)


Check: TypeAlias = Callable[[dict[str, str]], None]
CHECKS: tuple[Check, ...] = (
    lint,
    check_go,
    check_java,
    check_php,
    check_ruby,
    check_others,
    check_attrs,
    check_pydantic,
    check_mcp,
    check_typescript,
    check_guides,
)


def main() -> None:
    """Run every check against a service of its own, with fresh accounts for each."""
    for name in ("go", "java", "php", "ruby", "csharp", "kotlin", "rust", "attrs", "pydantic", "typescript"):
        shutil.rmtree(WORK / name, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningService(Path(folder), rate_limit="60", base_url=BASE_URL, contact="help@market.example") as running,
    ):
        DOCUMENT.write_bytes(httpx2.get(f"{running.base_url}/openapi.json").content)
        for check in CHECKS:
            keys = {f"{name.upper()}_KEY": person.key for name, person in running.cast()._asdict().items()}
            start = time.monotonic()
            check({"LISTINGS_URL": running.base_url, "UNKNOWN_VALUES": str(PROGRAMS / "unknown_values.json"), **keys})
            sys.stdout.write(f"{check.__name__}: {time.monotonic() - start:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
