"""The small models that come with regard, so that no part of its page is empty: some minutes, 1.5 MB in all.

python -m experiments.embedded           # into regard/web/models
"""

import random
import sys
import tempfile
from pathlib import Path

import regard
from regard.data.grammar import corpus

HOME = Path("regard/web/models")
REPEATED = 0.45  # of the sentences of a story: what can be said again by looking back is what heads learn first
RECIPES = {
    "language": {
        "task": "language", "tokenizer": "word", "vocab_size": 600, "size": 64, "layers": 3, "heads": 4,
        "context": 128, "steps": 5_000, "learning_rate": 3e-3, "dropout": 0.0,
    },
    "translator": {
        "task": "translate", "model": "transformer", "size": 64, "layers": 2, "heads": 4, "steps": 2_000,
        "learning_rate": 2e-3, "dropout": 0.05,
    },
    "vit": {"task": "images", "model": "vit", "size": 64, "layers": 3, "heads": 4, "patch_size": 2, "steps": 3_000},
    "resnet": {"task": "images", "model": "resnet", "depths": "1,1,1", "steps": 600},
}  # fmt: skip


def stories(path: Path, count: int = 12_000) -> Path:
    """A line for each story: sentences of the grammar, some of which are said again."""
    sentences = [pair.source.rstrip(".") for pair in corpus("fr", 40_000).train if not pair.source.endswith("?")]
    chance = random.Random(0)
    lines = []
    for _ in range(count):
        story = [chance.choice(sentences)]
        for _ in range(chance.randint(2, 6)):
            story.append(chance.choice(story if chance.random() < REPEATED else sentences))
        lines.append(". ".join(story) + ".")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def main(names: list[str]) -> None:
    """Train them, and keep their numbers in half precision."""
    with tempfile.TemporaryDirectory() as work:
        for name in names or RECIPES:
            options = dict(RECIPES[name])
            data = stories(Path(work) / "stories.txt") if name == "language" else None
            trained = regard.train(options.pop("task"), data, out=Path(work) / name, threads=1, **options)
            print(name, trained.results["test"], flush=True)
            trained.model.half().save(HOME / name)


if __name__ == "__main__":
    main(sys.argv[1:])
