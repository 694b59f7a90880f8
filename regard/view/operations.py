"""The operations of PyTorch that a running model is made of, each looked up once."""

from __future__ import annotations

from typing import Any

import torch

from regard.view import axis_rules

POINTWISE = (
    "_to_copy", "clone", "detach", "alias", "contiguous", "masked_fill", "where", "dropout", "lift_fresh", "bernoulli",
    "tril", "triu",
)  # fmt: skip


class Operation:
    """An operation of PyTorch, and what it is: looked up once, for there are hundreds in a run.

    name: without the namespace, and without the underscore of operations in place
    """

    __slots__ = ("func", "is_composite", "is_custom", "is_pointwise", "makes_views", "name", "rule", "writes")

    def __init__(self, func: Any) -> None:
        schema = getattr(func, "_schema", None)
        self.func, self.writes = func, schema is not None and schema.is_mutable
        space, _, name = ("", "", str(func)) if schema is None else schema.name.partition("::")
        self.name, self.is_custom = name.rstrip("_"), space not in ("", "aten", "prim", "prims", "regard")
        self.is_composite = isinstance(func, torch._ops.OpOverload) and func._can_decompose()
        key = torch._C.DispatchKey.ADInplaceOrView  # where PyTorch notes what a view is of, but for composite ones
        self.makes_views = self.is_composite and func.has_kernel_for_dispatch_key(key)
        self.is_pointwise = torch.Tag.pointwise in getattr(func, "tags", ()) or self.name in POINTWISE
        self.rule = axis_rules.RULES.get(self.name)
