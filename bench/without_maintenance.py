"""Run `listings` without the maintenance that begins a minute after its start: `python -m bench.without_maintenance`.

Under valgrind, deleting old data takes several seconds, in which no response is cached.
"""

from listings.cli import main
from listings.service import background_tasks

if __name__ == "__main__":
    background_tasks.MINUTELY_SECONDS = 86_400  # no setting, because nobody needs another value
    main()
