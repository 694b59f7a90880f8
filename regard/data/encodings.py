"""The text of a file that may be compressed, and in one of several encodings."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable

from regard.data.tables import TableError

__all__ = ["decode", "decompress"]

# What the files begin with. Longer marks first: that of UTF-32 begins with that of UTF-16.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: ("utf-8-sig", "UTF-8"),
    codecs.BOM_UTF32_LE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF32_BE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF16_LE: ("utf-16", "UTF-16"),
    codecs.BOM_UTF16_BE: ("utf-16", "UTF-16"),
}
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\3\4": "zip"}

OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"


def decompress(raw: bytes, place: str) -> tuple[bytes, str]:
    """The content of gzip, bz2, xz, zstd, or of a zip archive with one file, and which of them it was, or ""."""
    if raw.startswith(OLD_WORKBOOK) or (raw.startswith(b"PK") and b"xl/workbook.xml" in raw):
        raise TableError(f"{place}: is a workbook of Excel; save it as CSV")
    kind = next((name for mark, name in COMPRESSIONS.items() if raw.startswith(mark)), "")
    unpack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        "gzip": gzip.decompress,
        "bz2": bz2.decompress,
        "xz": lzma.decompress,
    }
    unpack |= {"zstd": _decompress_zstd, "zip": _the_file_of_an_archive}
    try:
        return unpack[kind](raw), kind
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, ImportError) as error:
        raise TableError(f"{place}: cannot be decompressed as {kind}: {error}") from error


def decode(raw: bytes, encoding: str | None, place: str) -> tuple[str, str]:
    """The text, and the encoding it was in: as given, by its mark, UTF-8, or else Latin-1 or Windows-1252."""
    for mark, (codec, name) in BYTE_ORDER_MARKS.items():
        if raw.startswith(mark) and encoding is None:
            return _decode_as(raw, codec, name, place), name
    if encoding is not None:
        return _decode_as(raw, encoding, encoding, place), encoding
    if raw.count(0) > len(raw) // 4:  # every other byte of a text in UTF-16
        little = raw[1::2].count(0) >= raw[::2].count(0)
        return _decode_as(raw, "utf-16-le" if little else "utf-16-be", "UTF-16", place), "UTF-16"
    try:
        return raw.decode("utf-8"), "UTF-8"
    except UnicodeDecodeError:
        latin = not any(0x80 <= byte < 0xA0 for byte in set(raw))  # control characters there, signs in Windows-1252
        name = "Latin-1" if latin else "Windows-1252"
        return raw.decode("latin-1" if latin else "cp1252", errors="replace"), name


def _decode_as(raw: bytes, codec: str, name: str, place: str) -> str:
    try:
        return raw.decode(codec)
    except UnicodeError as error:
        raise TableError(f"{place}: is not {name} text: {error}") from error
    except LookupError as error:
        raise TableError(f"{place}: no encoding {codec!r}; try gb18030, latin-1 or utf-16") from error


def _decompress_zstd(raw: bytes) -> bytes:
    import pyarrow

    content: bytes = pyarrow.CompressedInputStream(pyarrow.BufferReader(raw), "zstd").read()
    return content


def _the_file_of_an_archive(raw: bytes) -> bytes:
    archive = zipfile.ZipFile(io.BytesIO(raw))
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if len(names) != 1:
        raise ValueError(f"expected one file in it, got {len(names)}")
    return archive.read(names[0])
