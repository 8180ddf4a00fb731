"""What holds for every test: the user's cache is left alone, no kernel of an earlier test is found in it, and random
examples are the same in every run (new ones are the fuzzer's task)."""

import pytest
from hypothesis import settings

from rollergen.store.cache import forget_failures
from rollergen.store.location import DIRECTORY_VARIABLE

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path, monkeypatch):
    """Each test begins with an empty cache in a directory of its own; processes it starts share that."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "rollergen-cache"))
    forget_failures()
