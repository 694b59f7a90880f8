"""The course notes themselves, where the reader has them: the passages that sections judge, and the fate of each line.

The project stores digests and line numbers, and no sentence of the notes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.tour.section import Passage, Section

# The first half of each file's SHA-256.
DIGESTS = {
    "000": "a0c8a9cbfebbbd50a0fa06f00e710402",
    "001": "795296210e26a35b016c029bf1dbf133",
    "002": "a270385099fdc0f95b8eeccd4d257c43",
    "003": "e7be5b6af72cc09790e644562fdd9403",
    "004": "d4ec48282afb69fa8522dbc00c77eeff",
}
# Lines that say something and claim nothing: definitions of words, steps of a computation, sources, remarks on the
# notes themselves. Titles, pictures and lines without a letter need no entry.
OTHER_LINES: dict[str, tuple[tuple[int, int], ...]] = {
    "000": ((1, 1), (35, 35), (61, 61), (85, 86), (140, 140)),
    "001": ((7, 13), (27, 34), (37, 37), (40, 43), (48, 51)),
    "002": ((20, 37), (118, 120)),
    "003": ((13, 13), (19, 19), (38, 38), (46, 66), (92, 92)),
    "004": ((3, 6), (34, 44), (66, 68), (101, 101), (124, 124)),
}


@dataclass(frozen=True)
class Notes:
    """The lines of each set of notes that was found, and what was wrong with the others."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def passages(self, section: Section) -> list[tuple[Passage, str]]:
        """The passages of a section that are here."""
        passages = []
        for passage in section.notes:
            lines = self.lines.get(passage.file, [])
            if passage.last <= len(lines):
                passages.append((passage, "\n".join(lines[passage.first - 1 : passage.last]).strip("\n")))
        return passages

    def without_passage(self, sections: Iterable[Section]) -> list[int]:
        """The claims that the notes make, but no passage of which was found."""
        return [section.number for section in sections if section.notes and not self.passages(section)]

    def coverage(self, sections: Sequence[Section]) -> dict[str, list[tuple[str, list[int] | None]]]:
        """Each line of each set with the claims that judge it; [] where it claims nothing, None where forgotten."""
        return {
            file: [(text, treated(file, number, text, sections)) for number, text in enumerate(lines, 1)]
            for file, lines in self.lines.items()
        }


def treated(file: str, number: int, text: str, sections: Sequence[Section]) -> list[int] | None:
    """The claims that judge a line, [] if it is known to claim nothing, None if nobody has looked at it."""
    claims = [
        section.number
        for section in sections
        if any(p.file == file and p.first <= number <= p.last for p in section.notes)
    ]
    is_other = text.lstrip().startswith(("#", "![", "<div")) or not any(map(str.isalpha, text))
    is_other = is_other or any(first <= number <= last for first, last in OTHER_LINES[file])
    return claims if claims or is_other else None


def read_notes(folder: Path) -> Notes:
    """The sets of notes in a folder, recognised by their digests whatever their names are."""
    notes, names = Notes(), {digest: name for name, digest in DIGESTS.items()}
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        notes.problems.append(f"{folder}: {error.strerror or error}")
        return notes
    for path in paths:
        try:
            content = path.read_bytes()
            name = names.get(hashlib.sha256(content).hexdigest()[:32])
            if name is None:
                notes.problems.append(f"{path.name}: not one of the five sets of notes, or changed since")
            else:
                notes.lines[name] = [line.rstrip("\r") for line in content.decode("utf-8").split("\n")]
        except OSError as error:
            notes.problems.append(f"{path.name}: {error.strerror or error}")
    missing = [name for name in DIGESTS if name not in notes.lines]
    if missing:
        notes.problems.append(f"no file is the set of notes {', '.join(missing)}")
    return notes
