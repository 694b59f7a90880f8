"""Is `regard.capture` right on it? Some 130 architectures, watched: `make architectures`, into docs/architectures.md.

campaign.py   what is asked of each: the same bits, the right weights or a report
library.py    the models of transformers, small and random: texts.py and media.py have a row for each
written.py    modules written by hand that attend in unusual ways, with special.py: a row for each
"""
