"""regard beside its peers, in one process, as ratios: `make bench`, or `make bench SUBJECT=dot` for one file alone.

A subject is one file here with a function `rows(tiny=False)` that yields Rows, and one word in `SUBJECTS`.
With tiny=True, as the tests run it, all of the same code takes seconds: sizes are small (titles may still name the real
ones), each side is measured once, no weights are fetched, no C++ is compiled, and the bars are not judged.
"""

SUBJECTS = (
    "additive",
    "decoding",
    "dot",
    "generation",
    "long",
    "masks",
    "models",
    "seeing",
    "start",
    "texts",
    "compiled",  # late, because the compiler leaves processes behind
    "gaussian",  # these two last: rows that came after KeOps measured slower than alone
    "kernel",
)
