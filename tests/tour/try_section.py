"""Try a section while writing it: python -m tests.tour.try_section 8 [folder]

Runs its cells, exercises and measurement, prints what came out and how long it took, and writes its charts as a page.
"""

import sys
import time
from pathlib import Path

from regard.tour import cells
from regard.tour.runner import run_section
from regard.tour.section import LANGUAGES, Result, show
from regard.tour.sections import load

STYLE = (Path(__file__).parents[2] / "regard/view/static/chart.css").read_text(encoding="utf-8")


def main(number: int, folder: Path) -> None:
    section = next(section for section in load() if section.number == number)
    start = time.perf_counter()
    variables = cells.run_plain(section)
    plain = time.perf_counter()
    cells.run_short(section, variables)
    print(f"plain cell {plain - start:.1f} s, {len(section.plain.strip().splitlines())} lines; ", end="")
    result: Result = run_section(section)
    print(f"all of it {time.perf_counter() - plain:.1f} s")
    if result.error:
        sys.exit(result.error)
    for name, _, value in result.labelled():
        print(f"  {name} = {show(value)}")
    for criterion in result.criteria:
        print(
            "  met " if criterion.met else "  NOT ",
            criterion.kind,
            "|",
            criterion.sentence.en,
            "|",
            criterion.sentence.zh,
        )
    for exercise, text in zip(section.exercises, result.answers, strict=True):
        print("  ?", exercise.question.en, "→", text.en, "|", text.zh)
    print(result.outcome)
    page = f"<!doctype html><meta charset=utf-8><style>{STYLE} body {{ width: 760px; margin: 1rem }}</style>"
    for language in LANGUAGES:
        for picture in result.pictures:
            page += (
                f"<figure>{picture.svg.to(language)}<figcaption>{picture.caption.to(language)}</figcaption></figure>"
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{section.anchor}.html").write_text(page, encoding="utf-8")
    print(folder / f"{section.anchor}.html")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "regard-tour"))
