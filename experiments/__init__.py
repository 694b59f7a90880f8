"""What regard's models learn on real data in a given time: `make experiments` runs all of it, into docs/results.md.

One file for each experiment. It is a list of trials, each of which leaves its figures in measured.json when it is done:
so an interrupted experiment goes on where it was, and the page is made of what was measured and of nothing else.
"""

EXPERIMENTS = ("grammar", "alignments", "processes", "reviews", "pictures", "language", "few_pairs", "catalogues")
