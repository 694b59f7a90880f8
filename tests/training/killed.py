"""`regard ARGUMENTS…` that is killed at its n-th file operation in a folder: python killed.py N FOLDER ARGUMENTS…

An audit hook runs before each file operation, so a kill can come at any point of a save.
"""

import os
import signal
import sys

OPERATIONS = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree"}


def main():
    left, folder = int(sys.argv[1]), os.path.abspath(sys.argv[2])

    def count(event, arguments):
        nonlocal left
        if event in OPERATIONS and isinstance(arguments[0], str | os.PathLike) and folder in os.fspath(arguments[0]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    from regard.cli import main as regard

    sys.exit(regard(sys.argv[3:]))


if __name__ == "__main__":
    main()
