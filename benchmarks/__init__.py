"""regard beside its peers, in one process, as ratios: `make bench`, or `python -m benchmarks additive dot`.

A subject is one file here with a function `rows(tiny=False)` that yields Rows, and one word in `SUBJECTS`.
With tiny=True, as the tests run it, all of the same code takes seconds: sizes are small (titles may still name the real
ones), each side is measured once, no weights are fetched, no C++ is compiled, and the bars are not judged.
"""

SUBJECTS = ("additive", "dot", "gaussian", "kernel", "models", "seeing", "start")
