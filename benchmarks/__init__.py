"""regard beside its peers, in one process, as ratios: `make bench`, or `python -m benchmarks additive dot`.

A subject is one file here with a function `rows(tiny=False)` that yields Rows, and one word in `SUBJECTS`.
With tiny=True, as the tests run it, the same code takes seconds: sizes are small, each side is measured once, the names
of rows may still speak of the real sizes, nothing is fetched or compiled by a peer, and nobody looks at the bars.
"""

SUBJECTS = ("additive", "dot", "gaussian", "kernel", "models", "seeing", "start")
