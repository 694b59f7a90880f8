"""The course notes, idea by idea: the code that runs it, its picture, and whether its claim held."""

from regard.tour.runner import run

__all__ = ["run"]
