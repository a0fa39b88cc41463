"""Run `listings` without what slowness under valgrind would change: `python -m bench.without_maintenance`.

The maintenance that begins a minute after the start takes several seconds there, in which no response is cached. And a
page of a list would exceed the time of a read on the event loop, and be read again in a thread.
"""

from listings.cli import main
from listings.service import background_tasks
from listings.store.sqlite import database

if __name__ == "__main__":
    background_tasks.MINUTELY_SECONDS = 86_400  # no settings, because nobody needs other values
    database._MAX_READ_SECONDS = 60.0  # noqa: SLF001 - see above
    main()
