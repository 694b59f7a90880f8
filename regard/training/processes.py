"""Several processes, on one machine or on many: what `torchrun` starts. Copies of the model (DDP), or parts (FSDP2)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor

from regard.models.model import Model
from regard.training.options import OptionError
from regard.training.task import LossModule

__all__ = ["World", "joined"]

CPU = torch.device("cpu")
PATIENCE = timedelta(hours=2)  # while the first process evaluates, the others wait


@dataclass(frozen=True)
class World:
    """This process among the others."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether processes talk to each other; also one alone does, if it was asked to share its model."""
        return distributed.is_initialized()

    def all_reduce(self, *numbers: float) -> list[float]:
        """Sums over all processes."""
        if not self.several:
            return list(numbers)
        held = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(held)
        return list(held.tolist())

    def broadcast(self, value: Any) -> Any:
        """What the first process has."""
        if not self.several:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def share(self, trainee: LossModule, *, shard: bool) -> nn.Module:
        """The module that every process trains its share of."""
        if shard:
            return _sharded(trainee, self.device.type)
        if not self.several:
            return trainee
        return nn.parallel.DistributedDataParallel(trainee)

    def no_sync(self, trainee: nn.Module, wanted: bool) -> AbstractContextManager[Any]:
        """Within this block gradients are added up in this process only, if that is wanted."""
        if isinstance(trainee, nn.parallel.DistributedDataParallel) and wanted:
            return trainee.no_sync()
        if isinstance(trainee, FSDPModule):
            trainee.set_requires_gradient_sync(not wanted)
        return nullcontext()

    def clip(self, trainee: nn.Module, longest: float) -> float:
        """Shorten the gradient to `longest` if it is longer, and say how long it was.

        Rows are added up in float64: over a whole tensor float32 is wrong by 1e-5, and differently for its parts, so
        that after a hundred steps two processes would have another model than one.
        """
        gradients = [parameter.grad for parameter in trainee.parameters() if parameter.grad is not None]
        parts = [own.to_local() if isinstance(own, DTensor) else own for own in gradients]
        rows = [torch.linalg.vector_norm(own, dim=-1).double().square().sum() for own in parts]
        squares = float(torch.stack(rows).sum()) if rows else 0.0
        if isinstance(trainee, FSDPModule):  # each process has a part of it; otherwise all have the same
            (squares,) = self.all_reduce(squares)
        length = math.sqrt(squares)
        if math.isfinite(length) and length > longest:
            torch._foreach_mul_(parts, longest / length)
        return length

    def whole(self, model: Model) -> dict[str, Tensor] | None:
        """All tensors of a model, put together again if it is in parts; for the first process only."""
        state = {}
        for name, tensor in model.state_dict().items():
            full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            if self.first:
                state[name] = full.detach().clone().cpu()
        return state if self.first else None


@contextmanager
def joined(device: str, *, shard: bool) -> Iterator[World]:
    """Within this block the process is one of those that torchrun started, or alone."""
    try:
        torch.device(device)
    except RuntimeError as error:
        raise OptionError(f"device: expected cpu or cuda, got {device!r}") from error
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 and not shard:
        yield World(device=torch.device(device))
        return
    if "MASTER_ADDR" in os.environ:
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        # torchrun keeps its store when it starts the processes again. What those before them left there, where each of
        # them was to be found, must not be read again.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        options: dict[str, Any] = {"store": PrefixStore(f"{attempt}/{size}", store), "rank": rank, "world_size": size}
    else:  # --shard without torchrun: one process that talks to itself
        options = {"init_method": "tcp://127.0.0.1:0", "rank": 0, "world_size": 1}
    own = torch.device(device, int(os.environ.get("LOCAL_RANK", "0"))) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(own)
    distributed.init_process_group("nccl" if device == "cuda" else "gloo", timeout=PATIENCE, **options)
    try:
        yield World(distributed.get_rank(), distributed.get_world_size(), own)
    finally:
        distributed.destroy_process_group()


def _sharded(trainee: LossModule, device: str) -> nn.Module:
    """Each block is a part of its own, so that no process ever has to hold all of them."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(device, (distributed.get_world_size(),))
    for name, module in trainee.model.named_modules():
        if name.rpartition(".")[0].endswith("blocks"):
            fully_shard(module, mesh=mesh)
    fully_shard(trainee, mesh=mesh)
    return trainee
