"""regard beside its peers, as ratios: `make bench`, or `make bench ROW=dot` for the rows that have this in their names.

A subject is one file here with `ROWS`, and one word in `SUBJECTS`. Each row is measured in a process of its own and
stored in measured.json as soon as it is done: so what was interrupted goes on, and docs/benchmarks.md is made of what
was measured and of nothing else. With tiny=True, as the tests run it, all of the same code takes seconds: sizes are
small, each side is measured once in a run, no weights are fetched and no C++ is compiled.
"""

SUBJECTS = (
    "additive",
    "decoding",
    "dot",
    "gaussian",
    "kernel",
    "long",
    "masks",
    "models",
    "compiled",
    "generation",
    "texts",
    "seeing",
    "start",
    "ablation",
)
