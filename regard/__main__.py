"""`python -m regard` is `regard`: what torchrun starts."""

import os
import sys

from regard.cli import main

if __name__ == "__main__":
    code = main()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Threads of gloo may still hold tensors: they would abort the process while Python shuts down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
