"""What a capture does not understand: weights that average nothing, products without weights, unseen computation.

`Reports` collects it while a model runs, and decides when the block ends. What runs is asked of Python: `running` is
the module of the model that does so right now, `constructed` the tensor that is being made.
"""

from __future__ import annotations

import functools
import linecache
import re
import sys
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from regard.attention.capture import Recorder
from regard.view.averages import Product, Weights
from regard.view.axes import axis_size

ATTENTION = re.compile(r"att(entio)?n", re.IGNORECASE)  # in the names of classes
NOT_USED = "its weights are not multiplied with values"
PENDING = 8  # weights that are kept for a product that may still come
PARTS = (nn.Softmax, nn.LogSoftmax, nn.Dropout, nn.Identity)  # of a module that attends
OURS = ("regard.attention", "regard.models")  # which notify observers themselves
_APPLY = vars(torch.autograd.Function)["apply"].__func__.__code__


@dataclass(frozen=True)
class Unrecognised:
    """Attention, or what looks like it, whose weights could not be understood.

    name: path of the module · operation: what it computed · shape: of the result · reason: why it is not a map
    """

    name: str
    operation: str
    shape: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.operation} {self.shape}: {self.reason}"


class Reports:
    """What was seen of a model's attention and not understood. recorder: knows its modules, and numbers them"""

    def __init__(self, recorder: Recorder) -> None:
        self.paths, self._number = recorder.paths, recorder.number
        self._learned = {id(tensor) for module in self.paths for tensor in learned_in(module)}
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
        """A tensor whose making was not seen: whether it is learned, or belongs to the module, as those of
        functional_call do.

        Else, if its shape is that of a sequence of vectors, it is an input, or was computed elsewhere.
        """
        if id(tensor) in self._learned or isinstance(tensor, nn.Parameter):
            return True
        modules = list(dict.fromkeys(all_running(self.paths, ours=False)))
        if not modules or not tensor.dim():
            return False
        for module in modules:
            # Another attribute may be a matrix, or the keys and values of what the module has read before.
            matrix = tensor.dim() == 2 and any(tensor is one for one in vars(module).values())
            if matrix or any(tensor is one for one in learned_in(module)):
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
            self.report(record.module, "softmax", map(axis_size, record.axes), NOT_USED, product)
        record.scores = None
        record.reported = True

    def withdraw(self, record: Weights, reason: str = "its weights are combined with others") -> None:
        """Weights that are no map, though they may have been delivered as one."""
        if record.delivered is not None:
            self.withdrawn.append(record.delivered)
        if record.delivered is not None or not record.reported:
            self.report(record.module, "softmax", map(axis_size, record.axes), reason, record.product)
        record.delivered, record.reported = None, True

    def report(
        self,
        module: nn.Module | None,
        operation: str,
        shape: Iterable[int],
        reason: str,
        product: Product | None = None,
    ) -> None:
        """Say why something is no map. product: the scores, if it is a softmax of them."""
        if module is None:
            return
        if product is not None and is_named(module):
            self._partial.add(module)
        self._number(module)
        entry = Unrecognised(self.paths[module], operation, tuple(shape), reason)
        if (module, entry) not in self.unrecognised:
            self.unrecognised.append((module, entry))

    def custom(self, name: str, args: Sequence[Any], result: Any) -> None:
        """An operator of another package, which may attend in its own way: to queries, keys and values."""
        given = [tensor for tensor in args if isinstance(tensor, Tensor) and tensor.is_floating_point()]
        output = result[0] if isinstance(result, (list, tuple)) and result else result
        ranks = [tensor.dim() for tensor in given[:3]]
        if not isinstance(output, Tensor) or len(ranks) < 3 or len(set(ranks)) > 1 or ranks[0] < 3:
            return
        module = running(self.paths, ours=False)
        if is_named(module) or output.shape[:-1] == given[0].shape[:-1] or ATTENTION.search(name):
            self.report(module, name, output.shape, "an operator of another package")

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


def learned_in(module: nn.Module) -> Iterator[Tensor]:
    """The parameters of a module, and its buffers, which may be weights, but for a cache (batch, heads, m, size)."""
    yield from (tensor for tensor in module._parameters.values() if tensor is not None)
    yield from (tensor for tensor in module._buffers.values() if tensor is not None and tensor.dim() < 4)


def is_named(module: nn.Module | None) -> bool:
    """Whether a module attends by the name of its class."""
    return module is not None and ATTENTION.search(type(module).__name__) is not None


# --------------------------------------------------------------------------------------------- what Python is doing


def tensors_in(args: Any) -> list[Tensor]:
    """All tensors in arguments."""
    if isinstance(args, Tensor):
        return [args]
    return [tensor for one in args for tensor in tensors_in(one)] if isinstance(args, (list, tuple)) else []


def running(modules: Container[nn.Module], *, ours: bool = True) -> nn.Module | None:
    """The innermost of these modules that is running. ours: also where one of regard's functions is within it."""
    return next(all_running(modules, ours=ours), None)


def all_running(modules: Container[nn.Module], *, ours: bool = True) -> Iterator[nn.Module]:
    """All of these modules that are running, the innermost first; a module may come twice."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not ours and frame.f_globals.get("__name__", "").startswith(OURS):
            return
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and module in modules and not isinstance(module, PARTS):
                yield module
        frame = frame.f_back


def passes_no_gradients(frame: FrameType | None, result: Tensor) -> str | None:
    """Why gradients do not pass through an edit of a result that was computed in this frame; None: they do."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if result.requires_grad and hooks is not None and hooks[0].__module__ == "torch.utils.checkpoint":
        return "torch.utils.checkpoint computes attention again without the edit: switch it off, or use torch.no_grad()"
    while frame is not None:  # a torch.autograd.Function, such as a checkpoint that is reentrant
        if frame.f_code is _APPLY and any(tensor.requires_grad for tensor in tensors_in(frame.f_locals["args"])):
            function = frame.f_locals["cls"].__name__
            return f"{function}, which has gradients of its own, passes none of an edit: use torch.no_grad()"
        frame = frame.f_back
    return None


def constructed(frame: FrameType | None, args: Sequence[Any]) -> Tensor | None:
    """A tensor of a subclass whose constructor is being called, as CausalBias' is: PyTorch cannot make it in a mode."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("torch._dynamo", "torch._compile")):
        frame = frame.f_back
    kind = None if frame is None else _callee(frame)
    if not isinstance(kind, type) or not issubclass(kind, Tensor) or kind is Tensor:
        return None
    if kind.__new__ is not Tensor.__new__:
        return None
    with _disable_current_modes():
        return torch.Tensor.__new__(kind, *args[0])


def _callee(frame: FrameType) -> Any:
    """What a frame is calling right now, by its source."""
    first, last, start, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if first is None or last is None or start is None:
        return None
    file = frame.f_code.co_filename
    lines = [linecache.getline(file, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    name = b"".join(lines).decode(errors="replace").partition("(")[0].strip().split(".")
    scopes = {**frame.f_builtins, **frame.f_globals, **frame.f_locals}
    return functools.reduce(lambda found, part: getattr(found, part, None), name[1:], scopes.get(name[0]))
