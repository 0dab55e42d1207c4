"""`python -m hybridlab …`: the command line."""

import sys

from hybridlab.cli import main

sys.exit(main())
