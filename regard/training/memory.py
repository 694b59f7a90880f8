"""Memory that a training process keeps.

Every step takes and frees the same large tensors. glibc gives each back to the system at once, which then clears its
pages anew: a third of the time of a language model with some thousand tokens.
"""

from __future__ import annotations

import ctypes
import platform

__all__ = ["keep_memory"]

TRIM_THRESHOLD, MAPPED_AT_MOST = -1, -4  # glibc's names: M_TRIM_THRESHOLD, M_MMAP_MAX


def keep_memory() -> bool:
    """Have this process keep what it frees, for its next step, until it ends. False where the C library is another."""
    if platform.libc_ver()[0] != "glibc":
        return False
    setting = ctypes.CDLL(None).mallopt
    return bool(setting(MAPPED_AT_MOST, 0)) and bool(setting(TRIM_THRESHOLD, -1))
