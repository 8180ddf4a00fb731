"""What holds for every test: the user's cache is left alone, and no kernel of an earlier test is found in it."""

import pytest

from rollergen.store.cache import forget_failures
from rollergen.store.location import DIRECTORY_VARIABLE


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path, monkeypatch):
    """Each test begins with an empty cache in a directory of its own; processes it starts share that."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "rollergen-cache"))
    forget_failures()
