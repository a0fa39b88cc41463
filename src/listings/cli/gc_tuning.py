"""What Python's collector of garbage walks through while requests wait for it."""

import gc

_YOUNG, _MIDDLE = 700, 10  # Python's own
_OLD = 1_000  # instead of 10


def spare_lasting_objects() -> None:
    """To be called once everything is there that the service needs.

    What is there now is looked at no more. What comes later and stays, such as answers that are kept, the collector
    would walk through several times a second under load, for 5 ms with 10,000 of them, to find some thirty objects:
    most cycles that requests leave are found while they are young. So it does that a hundred times less often.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
