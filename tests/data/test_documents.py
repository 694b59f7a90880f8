"""The embedded documents, and limits of the lines that are held in memory."""

import pytest

from regard.data import texts
from regard.data.corpus import topics
from regard.data.texts import TextError, read_texts


def test_more_than_fits_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "MAX_BYTES", 101)
    (tmp_path / "a").write_text("12345\n" * 17)
    with pytest.raises(TextError, match="a: line 17: expected 101 bytes at most"):
        read_texts(tmp_path / "a")


def test_the_topics_of_python_are_documents():
    documents = topics()
    assert len(documents) > 50
    assert 200_000 < sum(map(len, documents)) < 2_000_000
    assert all(document.strip() for document in documents)
    assert sum(document.startswith('The "assert" statement') for document in documents) == 1
