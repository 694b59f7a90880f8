"""What a capture does not understand: weights that average nothing, products without weights, unseen computation.

`Reports` collects it while a model runs, and decides when the block ends.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from regard.view.axes import Axes, axis_size
from regard.view.frames import all_running, running
from regard.view.maps import Unrecognised
from regard.view.states import Product, Weights

__all__ = ["ATTENTION", "Reports", "is_named"]

ATTENTION = re.compile(r"att(entio)?n", re.IGNORECASE)  # in the names of classes
NOT_USED = "its weights are not multiplied with values"
PENDING = 8  # weights that are kept for a product that may still come


class Reports:
    """What was seen of a model's attention and not understood.

    paths: of its modules · reserve: is called with a module that is reported
    """

    def __init__(self, paths: Mapping[nn.Module, str]) -> None:
        self.paths = paths
        self.reserve: Callable[[nn.Module], object] = lambda module: None
        self.unrecognised: list[tuple[nn.Module | None, Unrecognised]] = []
        self.withdrawn: list[Any] = []  # what the observer has made of calls that turned out to be parts of others
        self.calls: Counter[nn.Module] = Counter()  # that were understood
        self.delivered: dict[nn.Module, list[Any]] = {}  # what the observer has made of them
        self.pending: deque[Weights] = deque()
        self.products: list[Product] = []
        self._strangers: dict[nn.Module, tuple[int, ...]] = {}
        self._receivers: set[nn.Module] = set()  # modules to which a tensor came from elsewhere, after the first call
        self._partial: set[nn.Module] = set()  # modules with scores that were not understood
        self._failed: set[str] = set()

    def fail(self, func: Any, error: Exception) -> None:
        """An operation could not be followed."""
        if str(func) not in self._failed:
            self._failed.add(str(func))
            self.unrecognised.append((None, Unrecognised("", str(func), (), f"{type(error).__name__}: {error}")))

    def meet(self, tensor: Tensor) -> bool:
        """A tensor whose making was not seen: whether it belongs to the module, as those of functional_call do.

        Else, if its shape is that of a sequence of vectors, it is an input, or was computed elsewhere.
        """
        modules = list(dict.fromkeys(all_running(self.paths, ours=False)))
        if not modules or not tensor.dim():
            return False
        for module in modules:
            held = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
            if any(tensor is one for one in held):
                return True
        module = modules[0]
        if tensor.dim() > 2 and tensor.is_floating_point():
            if self.calls:
                self._receivers.add(module)
            if is_named(module):
                self._strangers.setdefault(module, tuple(tensor.shape))
        return False

    def begin(self, record: Weights) -> None:
        """Weights that may be multiplied with values."""
        record.module = running(self.paths, ours=False)
        record.reported = record.module is None
        if len(self.pending) == PENDING:
            self._give_up(self.pending.popleft())
        self.pending.append(record)

    def _give_up(self, record: Weights) -> None:
        """Weights that were not multiplied with values."""
        product = record.product
        if product is not None and product.averaged:  # by other weights of the same scores
            record.reported = True
        is_softmax = product is not None and record.normalized is not None
        if not record.reported and (is_softmax or is_named(record.module)):
            self.report(record.module, "softmax", _shape(record.axes), NOT_USED, product)
        record.scores = None
        record.reported = True

    def withdraw(self, record: Weights, reason: str = "its weights are combined with others") -> None:
        """Weights that are no map, though they may have been delivered as one."""
        if record.delivered is not None:
            self.withdrawn.append(record.delivered)
        if record.delivered is not None or not record.reported:
            self.report(record.module, "softmax", _shape(record.axes), reason, record.product)
        record.delivered, record.reported = None, True

    def report(
        self,
        module: nn.Module | None,
        operation: str,
        shape: Sequence[int],
        reason: str,
        product: Product | None = None,
    ) -> None:
        """Say why something is no map. product: the scores, if it is a softmax of them."""
        if module is None:
            return
        if product is not None and is_named(module):
            self._partial.add(module)
        self.reserve(module)
        entry = Unrecognised(self.paths[module], operation, tuple(shape), reason)
        if (module, entry) not in self.unrecognised:
            self.unrecognised.append((module, entry))

    def close(self) -> None:
        """Report what is left when the block ends."""
        while self.pending:
            self._give_up(self.pending.popleft())
        for module in self._partial:
            # A layer that attends in parts, of which not all are understood: each by itself would mislead.
            self.withdrawn += self.delivered.get(module, [])
        known = {module for module, _ in self.unrecognised} | set(self.calls)
        for product in self.products:
            if not product.used and product.module not in known:
                known.add(product.module)
                self.report(product.module, "product", product.shape, "its products are not turned into weights")
        for module, sizes in self._strangers.items():
            if not any(other in known for other in module.modules()):
                reason = "it was computed where no operation can be seen: compiled code?"
                self.report(module, "unknown", sizes, reason)
        kinds = {type(module) for module in self.calls}
        covered = {part for module in known if module is not None for part in module.modules()}
        for module in (child for parent in self._receivers for child in parent.children()):
            if type(module) in kinds and module not in covered:
                self.report(module, "unknown", (), "others of its class attended, this one not in this thread")


def _shape(axes: Axes) -> tuple[int, ...]:
    return tuple(map(axis_size, axes))


def is_named(module: nn.Module | None) -> bool:
    """Whether a module attends by the name of its class."""
    return module is not None and ATTENTION.search(type(module).__name__) is not None
