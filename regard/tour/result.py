"""What came of one section."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.tour.section import LANGUAGES, Criterion, Language, Numbers, Outcome, Section, Text, show, verdict
from regard.view.pictures import THEMES

Variant = tuple[Language, str]  # of a picture: language and theme
VARIANTS: list[Variant] = [(language, theme) for language in LANGUAGES for theme in THEMES]


@dataclass(frozen=True)
class Result:
    """What came of one section. One that failed has an error, in one line, and neither numbers nor pictures.

    section: the claim.
    seconds: how long it took, with its share of what it needs.
    numbers: what it measured.
    pictures: PNG files, in each language and theme.
    error: why it failed.
    cached: whether it comes from an earlier tour.
    """

    section: Section
    seconds: float
    numbers: Numbers | None = None
    pictures: Mapping[Variant, bytes] = field(default_factory=dict)
    error: str = ""
    cached: bool = False
    criteria: list[Criterion] = field(init=False)  # what the section's `judge` says of the numbers

    def __post_init__(self) -> None:
        criteria: list[Criterion] = []
        if self.numbers is not None:
            names, meanings = vars(self.numbers), self.section.meanings
            if names.keys() != meanings.keys():
                raise TypeError(f"Numbers: expected {', '.join(meanings)}, as in `meanings`, got {', '.join(names)}")
            criteria = list(self.section.judge(self.numbers))
        object.__setattr__(self, "criteria", criteria)

    @property
    def outcome(self) -> Outcome:
        """The verdict."""
        return Outcome.FAILED if self.numbers is None else verdict(self.criteria)

    def labelled(self) -> Iterator[tuple[str, Text, Any]]:
        """Name, meaning and value of each number."""
        for name, meaning in self.section.meanings.items() if self.numbers else ():
            yield name, meaning, getattr(self.numbers, name)

    @property
    def deciding(self) -> tuple[str, Text]:
        """The number that stands for all in the table of verdicts, and what it is; the error, where there is none."""
        if self.numbers is None:
            return "", Text(self.error, self.error)
        name = self.section.deciding
        return show(getattr(self.numbers, name)), self.section.meanings[name]

    @property
    def anchor(self) -> str:
        """The section's place in the page."""
        return f"claim-{self.section.number:02}"

    def picture_name(self, language: Language, theme: str) -> str:
        """The file of its picture: claim-17.png, claim-17-zh.png, claim-17-dark.png, claim-17-zh-dark.png."""
        default = ("en", "light")
        return "-".join([self.anchor, *(part for part in (language, theme) if part not in default)]) + ".png"

    def notebook_name(self, language: Language) -> str:
        """The file of its notebook."""
        return f"notebooks/{language}/{self.anchor}.ipynb"
