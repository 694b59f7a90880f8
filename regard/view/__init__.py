"""Weights as numbers and pictures. What is public is in `regard`, and imported when it is first used."""

import logging

# Warnings of matplotlib's font finder that say nothing to whoever asked for a picture, but would stand in the terminal.
NOISE = (
    "Matplotlib is building the font cache",  # at the first run
    "Could not save font_manager cache",
    "findfont: Failed to find font weight",  # of a font that has only others, which are as good
)
logging.getLogger("matplotlib.font_manager").addFilter(lambda record: not str(record.msg).startswith(NOISE))
