"""`python -m academy.bench`: the same as `academy bench`."""

import sys

from academy.bench.command import main

sys.exit(main())
