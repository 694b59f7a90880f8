"""`python -m regard` is `regard`: what torchrun starts."""

import sys

from regard.cli import main

if __name__ == "__main__":
    sys.exit(main())
