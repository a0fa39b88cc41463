"""Run the `listings` command as `python -m listings`."""

import sys

from listings.cli import main

sys.exit(main())
