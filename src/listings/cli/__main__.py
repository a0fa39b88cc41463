"""`python -m listings.cli`: the `listings` command without an installation."""

import sys

from listings.cli import main

sys.exit(main())
