"""`listings`, but that a service begins before anything of its database is looked at: `python late_look.py serve`."""

import sys

from listings import assemble, cli

assemble._LOOK_BEFORE_SECONDS = 0.0  # noqa: SLF001 - a large file takes longer than the product waits
sys.exit(cli.main())
