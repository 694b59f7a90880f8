"""regard beside its peers, in one process, as ratios: `make bench`, or `python -m benchmarks additive dot`.

A subject is one file here with a function `rows()` that yields Rows, and one word in `SUBJECTS`.
"""

SUBJECTS = ("additive", "dot", "gaussian", "kernel", "models", "seeing", "start")
