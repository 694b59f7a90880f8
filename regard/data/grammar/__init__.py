"""A small bilingual grammar: English sentences with their French or Chinese, and which words belong together."""

from regard.data.grammar.parallel import LANGUAGES, GrammarError, corpus

__all__ = ["LANGUAGES", "GrammarError", "corpus"]
