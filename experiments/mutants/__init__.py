"""Do the tests notice faults? `make mutants` makes some, one at a time, in a copy of the package: docs/mutants.md.

A mutant is the package with one small fault in it (mutations.py). It is killed when a test that runs it (tracing.py)
fails, hangs or crashes (trying.py), and survives when none does. The sample depends on seed and source alone;
verdicts.json has what came of each, with a digest of the function, so that a change of the code sets aside only what it
touches. equivalent.toml has the mutants that no test can notice, with reasons.
"""
