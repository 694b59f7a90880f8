"""Content files: all that a section says, in both languages; and what is wrong with one, by file and line."""

import re
import sys
from pathlib import Path

import pytest

from regard.tour import content, sections, words
from regard.tour.content import Content, ContentError
from regard.tour.section import Control, Exercise, Passage, Slider, Text

SOURCE = """# Claim 7

- notes: 000:36-39, 001:5
- uses: 3, 39
- deciding: rise
- laboratory: #/curve?kernel=gaussian

## Title

A title

标题

## Claim

A claim that goes on
in the next line.

一个论断，
跨行
书写，有 ViT
三个字母。

## Idea

Idea.

想法。

## Formula

```math
a < b
```

## Plain cell

```python
def double(x):
    return 2 * x


# a comment
width = 1.0
```

## With regard

```python
import regard
```

## Controls

- `width = 1.0` `Slider(0.1, 10, log=True)`: the width: of all
  宽度

## Numbers

- `rise`: largest |a − b|
  最大差

## Criteria

### flat

{rise} must be 0.

{rise} 应为 0。

## Pictures

### cell

{count} samples.

{count} 个样本。

## Labels

- truth
  真值

## Exercises

### 1

Wider?

更宽？

```diff
- width = 1.0
+ width = 2.0
```

{now.width}

{now.width}

## Data

### rows

```text
a | b
```
"""


@pytest.fixture
def read(tmp_path):
    """The content of a file with this source."""

    def read_source(source):
        (tmp_path / "claim_07.md").write_text(source, encoding="utf-8")
        return Content(str(tmp_path / "claim_07.py"))

    return read_source


def test_everything_in_a_file_is_read(read):
    file = read(SOURCE)
    assert file.fields == {
        "number": 7,
        "notes": (Passage("000", 36, 39), Passage("001", 5, 5)),
        "uses": (3, 39),
        "deciding": "rise",
        "laboratory": "#/curve?kernel=gaussian",
        "title": Text("A title", "标题"),
        "claim": Text("A claim that goes on in the next line.", "一个论断，跨行书写，有 ViT 三个字母。"),
        "idea": Text("Idea.", "想法。"),
        "formula": "a < b",
        "plain": "def double(x):\n    return 2 * x\n\n\n# a comment\nwidth = 1.0",
        "short": "import regard",
        "controls": (Control("width = 1.0", Text("the width: of all", "宽度"), Slider(0.1, 10, log=True)),),
        "meanings": {"rise": Text("largest |a − b|", "最大差")},
        "exercises": (
            Exercise(("width = 1.0", "width = 2.0"), Text("Wider?", "更宽？"), Text("{now.width}", "{now.width}")),
        ),
    }
    assert file("flat") == Text("{rise} must be 0.", "{rise} 应为 0。")
    assert file("cell", count=3) == Text("3 samples.", "3 个样本。")
    assert file("cell", count=Text("three", "三")) == Text("three samples.", "三 个样本。")
    assert file("truth") == Text("truth", "真值")
    assert file.data == {"rows": "a | b"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# Claim 7", "# Section 7", r"1: expected # Claim and its number, got Section 7"),
        ("# Claim 7\n", "Claim 7\n", r"1: expected # and a heading, got Claim 7"),
        ("- uses: 3, 39", "- uses: three", r"4: expected - and one of notes: 000:36-39, .*, got - uses: three"),
        ("- uses: 3, 39", "- use: 3", r"4: expected - and one of notes: .*, got - use: 3"),
        ("deciding: rise", "deciding: fall", r"1: expected - deciding: and one of rise, got fall"),
        ("## Title", "## Titel", r"8: expected one of the headings Title, Claim, .*, got Titel"),
        ("## Idea", "## Claim", r"24: expected every heading once, got a second Claim"),
        ("Idea.\n\n", "", r"24: expected paragraph, paragraph below Idea, got paragraph"),
        ("## Idea\n\nIdea.\n\n想法。\n\n", "", r"1: expected a heading Idea, got Claim 7, Title, Claim, .*"),
        ("```math", "```python", r"30: expected math below Formula, got python"),
        ("import regard\n```", "import regard", r"47: expected python below With regard, got .*"),
        ("Slider(0.1", "Slide(0.1", r"55: expected Slider\(low, high\), .*, got Slide\(0.1, 10, log=True\)"),
        ("10, log=True", "10, logarithmic=True", r"55: expected Slider\(low, high\), .*"),
        ("`rise`: largest", "rise: largest", r"60: expected - `name`: what it is and in .*, got - rise: largest .*"),
        ("  最大差\n", "", r"60: expected .* in the next line, .* Chinese, got - `rise`: .*"),
        ("+ width = 2.0\n", "", r"86: expected - the line as it is, \+ the line in its place, got - width = 1.0"),
        ("{now.width}\n\n{now.width}", "{now.width}", r"86: expected paragraph, .*, diff, .* got .*, diff, paragraph"),
    ],
)
def test_what_is_wrong_is_said_by_file_and_line(read, old, new, message):
    assert old in SOURCE
    with pytest.raises(ContentError, match=rf"(?s)^claim_07\.md:{message}$"):
        _ = read(SOURCE.replace(old, new, 1)).fields


def test_a_text_that_is_not_there_is_named(read):
    with pytest.raises(ContentError, match=r"^claim_07\.md: expected one of flat, cell, truth, got 'round'$"):
        read(SOURCE)("round")


@pytest.mark.parametrize("section", sections.load(), ids=lambda section: section.number)
def test_words_stand_in_the_content_file_and_nowhere_else(section):
    path = Path(sys.modules[section.judge.__module__].__file__)
    code = path.read_text(encoding="utf-8")
    assert not re.search(content.LETTER, re.sub(r'"[a-z]*的一是在"|r".*"', "", code)), "Chinese in the code"
    said = sys.modules[section.judge.__module__].say
    sentences, labels = re.split("^## Exercises", said.source, flags=re.M)[0].partition("## Labels")[::2]
    assert len(said.texts) == len(re.findall("^### ", sentences, re.M)) + len(re.findall("^- ", labels, re.M))
    for key in said.texts:
        if f"## Labels\n\n- {key}" not in said.source and f"\n- {key}\n" not in said.source:
            assert f'say("{key}"' in code, f"nothing says {key!r}"


def test_words_around_the_sections_are_said():
    home = Path(words.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in [*home.glob("*.py"), *home.glob("*.html")])
    outcomes = ("held", "partly", "did not hold", "true by definition", "imprecise", "not testable here", "failed")
    assert [key for key in words.say.texts if f'"{key}"' not in code and f"'{key}'" not in code] == []
    assert all(words.say(outcome).zh for outcome in outcomes)
