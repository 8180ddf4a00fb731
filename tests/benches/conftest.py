"""What holds for tests of benches."""

import os

import pytest


@pytest.fixture(autouse=True)
def _cores_stay():
    """A bench keeps one core for itself, and as many threads, when it is imported: other tests have all of them."""
    cores, variables = os.sched_getaffinity(0), dict(os.environ)
    yield
    os.sched_setaffinity(0, cores)
    os.environ.clear()
    os.environ.update(variables)
