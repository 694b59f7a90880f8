"""Attention you can compute, train and see.

One formula, ``output = Σ_j normalize_j(score(query, key_j) restricted by mask) · value_j``, and everything that follows
from it. The public names are those of ``__init__.pyi``; each is imported when it is first used, so ``import regard``
costs nothing.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
