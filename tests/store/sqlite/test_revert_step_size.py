"""How many listings a step of a revert changes."""

from itertools import count

from listings.store.sqlite.database import RevertStepSize


def test_steps_grow_while_nobody_else_writes() -> None:
    step_size = RevertStepSize(count(0, 2).__next__)
    sizes = [step_size.choose() for _ in range(30)]
    assert (sizes[:3], sizes[-2:]) == ([35, 45, 55], [300, 300])


def test_a_step_is_small_after_a_write_of_others() -> None:
    step_size = RevertStepSize(iter((0, 2, 4, 8, 10, 13)).__next__)
    assert [step_size.choose() for _ in range(5)] == [35, 45, 25, 35, 25]
