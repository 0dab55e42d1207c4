"""`python -m hybridlab …`: the command line."""

import sys

from hybridlab.cli.main import main

sys.exit(main())
