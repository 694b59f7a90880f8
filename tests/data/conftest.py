"""What several tests of readers need."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a file: write("name", "content"), and returns its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
