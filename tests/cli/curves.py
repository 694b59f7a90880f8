"""A table for the tests of `regard curve`, and what they read."""

import csv


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
