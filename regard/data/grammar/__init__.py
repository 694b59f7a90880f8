"""A small bilingual grammar: English sentences with their French or Chinese, and which words belong together."""

from regard.data.grammar.parallel import LANGUAGES, Corpus, GrammarError, corpus

__all__ = ["LANGUAGES", "Corpus", "GrammarError", "corpus"]
