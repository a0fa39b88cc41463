"""`listings conform`: whether any server keeps the specification."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from listings.cli.output import Data, json_option, show_rows, tell
from listings.conform.client import Address, address_of
from listings.conform.runner import run
from listings.conform.session import Keys
from listings.conform.verdicts import Result, Verdict

_STYLES = {Verdict.KEPT.value: "green", Verdict.BROKEN.value: "bold red", Verdict.NOT_CHECKED.value: "yellow"}
_LONGEST_TIMEOUT = 600

C = TypeVar("C", bound=Callable[..., Any])


class BaseUrl(click.ParamType[Address]):
    """The base address of a server."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:  # noqa: ANN401 - click's signature
        """The address that the URL names."""
        try:
            return value if isinstance(value, Address) else address_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class KeyText(click.ParamType[str]):
    """A key that a header can carry. A wrong one is not repeated."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401 - click's signature
        """The key as it is."""
        if not value or not all("!" <= letter <= "~" for letter in value):
            self.fail("must be visible ASCII characters without spaces", param, ctx)
        return str(value)


class Seconds(click.FloatRange):
    """A number of seconds within bounds, and so none that is no number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - click's signature
        """The number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def _key_option(name: str, text: str, *, required: bool = False) -> Callable[[C], C]:
    variable = f"LISTINGS_CONFORM_{name.upper().replace('-', '_')}"
    return click.option(
        f"--{name}", type=KeyText(), envvar=variable, show_envvar=True, metavar="KEY", required=required, help=text
    )


@click.command(short_help="Check any server against the specification.")
@click.argument("base_url", type=BaseUrl())
@_key_option("key", "A key of an account with a current Business plan, best of one without listings.", required=True)
@_key_option("other-key", "A key of another account, to check that it reaches nothing.")
@_key_option("expired-key", "A key of an account whose Business plan has expired.")
@click.option(
    "--rate-limit/--no-rate-limit",
    help="Check the rate limit too. It uses up the key's requests for an hour. Default: no",
)
@click.option(
    "--timeout",
    type=Seconds(0, _LONGEST_TIMEOUT, min_open=True),
    metavar="SECONDS",
    default=10,
    help="How long an answer may take. Default: 10",
)
@json_option
def conform(
    base_url: Address,
    key: str,
    other_key: str | None,
    expired_key: str | None,
    timeout: float,
    *,
    rate_limit: bool,
    as_json: bool,
) -> int:
    """Check whether the server at BASE_URL keeps the specification, sentence by sentence.

    It may be any server at all. The run makes listings with the key and deletes them again. Give the keys by the
    environment: everybody on the machine can see a command line. The exit code is 0 when nothing is broken.

    \b
    Example: listings conform http://127.0.0.1:8000
    """
    given = [secret for secret in (key, other_key, expired_key) if secret is not None]
    if len(set(given)) < len(given):
        raise click.UsageError("--key, --other-key and --expired-key have to be of three accounts, so they differ.")
    results = run(base_url, Keys(key, other_key, expired_key), tell, rate_limit=rate_limit, timeout=timeout)
    columns = ("id", "sentence", "verdict", "happened")
    show_rows(columns, map(_data, results), as_json=as_json, styles=_STYLES)
    tell(_summary(results))
    return int(any(result.verdict is Verdict.BROKEN or result.prevented for result in results))


def _data(result: Result) -> Data:
    return {
        "id": result.id,
        "section": result.section,
        "sentence": result.sentence,
        "verdict": result.verdict.value,
        "happened": result.happened,
    }


def _summary(results: list[Result]) -> str:
    counts = [f"{sum(result.verdict is verdict for result in results)} {verdict.value}" for verdict in Verdict]
    return f"{len(results)} checks: {', '.join(counts)}."
