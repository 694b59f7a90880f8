"""The sections of the tour. Every file here is the code of one, its words are beside it; CHAPTERS is their order."""

import pkgutil
from importlib import import_module

from regard.tour.section import Section, Text

CHAPTERS: dict[Text, tuple[int, ...]] = {
    Text("Cues and pooling", "注意力提示与汇聚"): (1, 35, 2, 3, 4, 7),
    Text("Kernel regression", "核回归"): (5, 36, 39, 6, 10, 8, 9),
    Text("Queries, keys, values and their scores", "查询、键、值与评分"): (31, 11, 12, 13, 14, 15, 16),
    Text("Encoder, decoder, attention", "编码器、解码器与注意力"): (32, 17, 18, 19, 20, 33, 34),
    Text("Self-attention", "自注意力"): (21, 22, 23, 24, 25, 38, 26),
    Text("The Transformer", "Transformer"): (27, 37, 28, 29, 30),
    Text("Beyond the notes", "笔记之外"): (40,),
}


def load() -> list[Section]:
    """All sections, in the order of the page."""
    sections = {}
    for module in pkgutil.iter_modules(__path__):
        section: Section = import_module(f"{__name__}.{module.name}").SECTION
        sections[section.number] = section
    return [sections[number] for chapter in CHAPTERS.values() for number in chapter if number in sections]
