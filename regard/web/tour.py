"""The tour as a live page: sections arrive as they are run, and pictures are drawn again for a reader's values."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

from regard.tour import cells, page
from regard.tour.runner import run_sections
from regard.tour.section import LANGUAGES, Language, Result, Section
from regard.tour.sections import load
from regard.web.guard import Params


class Tour:
    """The sections and what has come of them so far.

    sections: None for all of them.
    """

    def __init__(self, sections: Sequence[Section] | None = None) -> None:
        self.sections = list(load() if sections is None else sections)
        self.results: dict[int, Result] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Run them in the background, one at a time: the page has to answer, too."""
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Leave what is not done."""
        self._stopped.set()

    def _run(self) -> None:
        with closing(run_sections(self.sections, processes=1)) as results:
            for result in results:
                self.results[result.section.number] = result
                if self._stopped.is_set():
                    return

    def page(self, language: Language, *, laboratory: bool = False) -> str:
        """The page with what is there."""
        results = [self.results[section.number] for section in self.sections if section.number in self.results]
        return page.page(self.sections, results, language, is_live=True, laboratory=laboratory)

    def bodies(self, params: Params) -> dict[str, Any]:
        """Of the sections that the page waits for, those that are done: {number: HTML}."""
        language, wanted = _language(params), params.fields.get("numbers")
        numbers = {number for number in wanted if type(number) is int} if isinstance(wanted, list) else set()
        ready = [section for section in self.sections if section.number in numbers & self.results.keys()]
        return {
            "bodies": {
                section.number: page.fragment(section, self.results[section.number], language) for section in ready
            }
        }

    def picture(self, params: Params) -> dict[str, str]:
        """The picture of a section's plain cell with a reader's values."""
        number, values = params.integer("number", 0, 1_000), params.fields.get("values")
        section = next((section for section in self.sections if section.number == number), None)
        if section is None or section.show is None:
            raise ValueError(f"number: expected a claim with a picture, got {number}")
        if not isinstance(values, dict):
            raise ValueError("values: expected an object")
        source = cells.controlled(section, values)
        chart = section.show(SimpleNamespace(**cells.run_plain(section, source)))
        language = _language(params)
        return {"svg": chart.svg(language), "table": chart.table(language)}


def _language(params: Params) -> Language:
    chosen = params.choice("language", LANGUAGES, "en")
    return "zh" if chosen == "zh" else "en"
