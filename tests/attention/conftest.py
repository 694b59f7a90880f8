"""What the tests of this room share besides the tables in cases.py."""

import pytest
import torch


@pytest.fixture
def one_thread():
    """Thousands of tiny problems: on a busy machine, two threads wait for each other longer than one computes."""
    torch.set_num_threads(1)  # tests/conftest.py puts it back
