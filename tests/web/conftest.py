"""A server with small models of every kind, and a page of it."""

import pytest

from tests.browsing import minded
from tests.web.serving import folders, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(folders(tmp_path_factory.mktemp("models"))) as served:
        yield served


@pytest.fixture
def page(browser, server):
    """A page whose errors and requests are checked at the end."""
    allowed = (server.address, "data:", "blob:", "file:")
    with minded(browser, allowed, viewport={"width": 1200, "height": 800}) as opened:
        server.enter(opened)
        yield opened
