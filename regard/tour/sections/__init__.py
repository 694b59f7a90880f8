"""The sections of the tour. Every file here is one, and their names give the order: claim_NN_what_it_says.py."""

import pkgutil
from importlib import import_module

from regard.tour.section import Section


def load() -> list[Section]:
    """All sections, in the order of the claims."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [import_module(f"{__name__}.{name}").SECTION for name in names]
