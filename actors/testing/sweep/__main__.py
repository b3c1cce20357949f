"""`python -m actors.testing.sweep`."""

import sys

from actors.testing.sweep.command import main

if __name__ == "__main__":
    sys.exit(main())
