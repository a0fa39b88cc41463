"""lst on a terminal: it asks, and shows progress."""

import os
import pty
import subprocess
import sys

import pytest

from tests.cli.commands import DEADLINE, clean_environment
from tests.client.lst import Lst

CATALOGUE = "sku,title,content,price\n" + "".join(f"p-{number},Lamp,Brass.,5\n" for number in range(150))


def run_on_terminal(lst: Lst, answer: str, *arguments: str) -> tuple[int, str]:
    """Run lst with a terminal as its input and error output. Return the exit code and what the terminal shows."""
    controller, terminal = pty.openpty()
    code = "from listings_client.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**clean_environment(), **lst.environment, "TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    os.write(controller, answer.encode())
    shown = b""
    try:
        while piece := os.read(controller, 65536):
            shown += piece
    except OSError:  # the other end was closed
        pass
    os.close(controller)
    return process.wait(DEADLINE), shown.decode()


@pytest.mark.parametrize(("answer", "code", "price"), [("y\n", 0, 9), ("n\n", 3, 5)])
def test_a_question_is_asked_on_a_terminal(lst: Lst, answer: str, code: int, price: int) -> None:
    lst.plan(CATALOGUE)
    lst.ok("apply", lst.plan_file)
    lst.plan(CATALOGUE.replace(",5\n", ",9\n"))
    outcome, shown = run_on_terminal(lst, answer, "apply", str(lst.plan_file))
    assert outcome == code
    assert "150 prices change by more than 50%. Apply them? [y/N]" in shown
    assert {one.price for one in lst.read().values()} == {price}
    assert ("100%" in shown and "150 applied" in shown) == (code == 0)
