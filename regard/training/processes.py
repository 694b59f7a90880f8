"""The process that trains: its device and its memory, the signals that it gets, and other processes.

Several processes on one machine or many are started by `torchrun`: with copies of the model (DDP), or shards (FSDP2).
SIGINT, SIGTERM and SIGHUP are noted when they come, and obeyed between two steps; at once while there is nothing to
save.
"""

import ctypes
import math
import os
import platform
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor

from regard.errors import RegardError
from regard.models.model import Model
from regard.training.options import OptionError

if TYPE_CHECKING:
    from regard.training.task import LossModule

Item = TypeVar("Item")
CPU = torch.device("cpu")
TIMEOUT = timedelta(hours=2)  # while the first process prepares the data or saves a model, the others wait
# Ctrl-C, the end of a job, and that of a terminal, which Windows does not know.
STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt


@dataclass(frozen=True)
class World:
    """This process among the others: its rank, how many there are (size), and its device."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        """Whether this process evaluates, saves and reports."""
        return self.rank == 0

    @property
    def is_distributed(self) -> bool:
        """Whether there is a process group; one process alone has one too, if its model is to be sharded."""
        return distributed.is_initialized()

    def all_reduce(self, *numbers: float) -> list[float]:
        """The sum of each number over all processes."""
        if not self.is_distributed:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(sums)
        return list(sums.tolist())

    def broadcast(self, value: Any) -> Any:
        """The value that the first process has."""
        if not self.is_distributed:
            return value
        values = [value]
        distributed.broadcast_object_list(values, src=0)
        return values[0]

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Those of the items that this process works on."""
        return items[self.rank :: self.size]

    def collect(self, results: list[Item]) -> list[Item]:
        """The results of all items, in their order, of the results that each process has for its share."""
        if not self.is_distributed:
            return results
        shares: list[Any] = [None] * self.size
        distributed.all_gather_object(shares, results)
        return [shares[index % self.size][index // self.size] for index in range(sum(map(len, shares)))]

    def wrap(self, module: "LossModule", *, shard: bool) -> nn.Module:
        """The module that all processes train together: as it is, in DDP, or sharded by FSDP2."""
        if shard:
            mesh = init_device_mesh(self.device.type, (self.size,))
            for name, child in module.model.named_modules():
                if name.rpartition(".")[0].endswith("blocks"):  # block by block: no process ever holds all of them
                    fully_shard(child, mesh=mesh)
            fully_shard(module, mesh=mesh)
            return module
        return nn.parallel.DistributedDataParallel(module) if self.is_distributed else module

    def no_sync(self, module: nn.Module, skip: bool) -> AbstractContextManager[Any]:
        """With skip=True gradients are summed within each process only in this block; a later batch synchronises."""
        if isinstance(module, nn.parallel.DistributedDataParallel) and skip:
            return module.no_sync()
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(not skip)
        return nullcontext()

    def clip_grad_norm(self, module: nn.Module, max_norm: float) -> float:
        """Scale the gradient down to `max_norm` if it is longer; return the norm it had.

        Rows are summed in float64: over a whole tensor float32 is wrong by 1e-5, and differently for its shards, so
        that after a hundred steps two processes would have another model than one.
        """
        gradients = local_shards(parameter.grad for parameter in module.parameters() if parameter.grad is not None)
        rows = [torch.linalg.vector_norm(gradient, dim=-1).double().square().sum() for gradient in gradients]
        squares = float(torch.stack(rows).sum()) if rows else 0.0
        if isinstance(module, FSDPModule):  # each process has a shard of it; otherwise all have the same
            (squares,) = self.all_reduce(squares)
        norm = math.sqrt(squares)
        if math.isfinite(norm) and norm > max_norm:
            torch._foreach_mul_(gradients, max_norm / norm)
        return norm

    def gather(self, model: Model) -> dict[str, Tensor]:
        """The state dict of a sharded model in one piece, in every process."""
        return {
            name: (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()
            for name, tensor in model.state_dict().items()
        }


def local_shards(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors, or this process's shards of them, without their history."""
    values = [tensor.detach() for tensor in tensors]
    return [value.to_local() if isinstance(value, DTensor) else value for value in values]


@contextmanager
def join(device: str, *, shard: bool) -> Iterator[World]:
    """Within this block the process belongs to the group that torchrun started, or is alone."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1 and not shard:
        yield World(device=find_device(device))
        return
    local = find_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device)
    if "MASTER_ADDR" in os.environ:
        store, rank, world_size = next(rendezvous("env://", timeout=TIMEOUT))
        # torchrun keeps its store when it starts the processes again, with the addresses of those before them in it.
        # The prefix keeps these from being read again.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        prefixed = PrefixStore(f"{attempt}/{world_size}", store)
        group: dict[str, Any] = {"store": prefixed, "rank": rank, "world_size": world_size}
    else:  # --shard without torchrun: a group of one process
        group = {"init_method": "tcp://127.0.0.1:0", "rank": 0, "world_size": 1}
    if device == "cuda":
        torch.cuda.set_device(local)
    distributed.init_process_group("nccl" if device == "cuda" else "gloo", timeout=TIMEOUT, **group)
    try:
        yield World(distributed.get_rank(), distributed.get_world_size(), local)
    finally:
        distributed.destroy_process_group()


def find_device(name: str) -> torch.device:
    """The device of this name, if PyTorch can compute on it here."""
    names = ["cpu"]
    if torch.accelerator.is_available():
        kind = str(torch.accelerator.current_accelerator())
        names += [kind, *(f"{kind}:{index}" for index in range(torch.accelerator.device_count()))]
    if name not in names:
        raise OptionError(f"device: expected {', '.join(names)}, which PyTorch can use here, got {name!r}")
    return torch.device(name)


def keep_memory() -> bool:
    """Make this process keep the memory that it frees, until it ends. False if the C library is not glibc.

    Every step allocates and frees the same large tensors. glibc returns each of them to the system at once, which then
    has to clear its pages again: a third of the time of a language model's step with a few thousand tokens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))


class Stopped(RegardError):
    """A run that ended because of a signal; the exit code is 128 + its number, as the shell expects."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = 128 + number


class Signals:
    """Within its block a first signal is noted in `caught`, and a second one raises Stopped at once.

    Only the main thread can handle signals: in any other one this does nothing.
    """

    def __init__(self) -> None:
        self.caught = 0
        self.handlers: dict[int, Any] = {}  # those before this block
        self.nothing_to_save = ""

    def __enter__(self) -> "Signals":
        try:
            for number in STOPS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup ignores the end of the terminal
                    self.handlers[number] = signal.signal(number, self._note)
        except ValueError:  # not the main thread
            self.handlers.clear()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def obeyed_at_once(self, text: str) -> Iterator[None]:
        """Within this block there is nothing to save: a signal, also one before it, raises Stopped with this text."""
        if self.caught:
            raise Stopped(self.caught, text)
        self.nothing_to_save = text
        try:
            yield
        finally:
            self.nothing_to_save = ""

    def _note(self, number: int, frame: Any) -> None:
        is_first = not (self.nothing_to_save or self.caught)
        waiting = b"\nregard: stopping after this step, or this evaluation; the same again stops at once\n"
        try:  # somebody waits, and an evaluation may take minutes; a handler cannot use buffered files
            os.write(2, waiting if is_first and os.isatty(2) else b"")
        except OSError:  # the terminal is gone, and what is still written there would end the run before it has saved
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        if self.nothing_to_save:
            raise Stopped(number, self.nothing_to_save)
        if self.caught:
            raise Stopped(number, "stopped at once; what was saved before is complete: go on with --resume")
        self.caught = number
