"""`listings conform`: check a server against the specification."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from listings.cli.output import Data, is_json_wanted, json_option, print_message, show_rows
from listings.cli.parameters import Parsed
from listings.conform.client import Address, parse_address
from listings.conform.runner import run
from listings.conform.session import Keys
from listings.conform.verdicts import Result, Verdict

_STYLES = {"passed": "green", "failed": "bold red", "blocked": "red", "skipped": "yellow"}
_MAX_TIMEOUT_SECONDS = 600

C = TypeVar("C", bound=Callable[..., Any])


def _parse_key(text: str) -> str:
    """Return an API key that fits into a header. The error message does not repeat it."""
    if not text or not all("!" <= letter <= "~" for letter in text):
        raise ValueError("must consist of printable ASCII characters without spaces")
    return text


class Seconds(click.FloatRange):
    """A number of seconds within bounds. click's own type accepts nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def _key_option(name: str, text: str, *, required: bool = False) -> Callable[[C], C]:
    variable = f"LISTINGS_CONFORM_{name.upper().replace('-', '_')}"
    key = Parsed("key", _parse_key)
    return click.option(
        f"--{name}", type=key, envvar=variable, show_envvar=True, metavar="KEY", required=required, help=text
    )


@click.command(short_help="Check any server against the specification.")
@click.argument("base_url", type=Parsed("url", parse_address))
@_key_option("key", "An API key of an account with an active Business plan and preferably no listings.", required=True)
@_key_option("other-key", "An API key of another account, to check that it has no access.")
@_key_option("expired-key", "An API key of an account whose Business plan has expired.")
@click.option(
    "--rate-limit/--no-rate-limit",
    help="Also check the rate limit. This uses up the key's requests for an hour. Default: no",
)
@click.option(
    "--timeout",
    type=Seconds(0, _MAX_TIMEOUT_SECONDS, min_open=True),
    metavar="SECONDS",
    default=10,
    help="The timeout of each request. Default: 10",
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
) -> int:
    """Check the server at BASE_URL against the specification, sentence by sentence.

    The server may be any implementation. The run creates listings with the key and deletes them again. A server may
    store deleted listings, as Listings does, so use a key of a test account.

    Set the keys in environment variables: other users of this machine can see a command line. The exit code is 1 if a
    check failed or was blocked.

    \b
    Example: listings conform http://127.0.0.1:8000
    """
    given = [secret for secret in (key, other_key, expired_key) if secret is not None]
    if len(set(given)) < len(given):
        raise click.UsageError("--key, --other-key and --expired-key must differ: each is of another account.")
    results = run(base_url, Keys(key, other_key, expired_key), print_message, rate_limit=rate_limit, timeout=timeout)
    show_rows(("id", "verdict", "sentence"), map(_row, results), _STYLES)
    print_message(_summarize(results))
    return int(any(result.verdict in {Verdict.FAILED, Verdict.BLOCKED} for result in results))


def _row(result: Result) -> Data:
    """Return a result for the table, or all of it for JSON.

    In the table, the observed result is appended to the sentence.
    """
    row = result._asdict()
    if result.happened and not is_json_wanted():
        row["sentence"] += f" - {result.happened}"
    return row


def _summarize(results: list[Result]) -> str:
    counts = [f"{sum(result.verdict is verdict for result in results)} {verdict.value}" for verdict in Verdict]
    return f"{len(results)} checks: {', '.join(counts)}."
