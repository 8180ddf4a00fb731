"""What holds for every test: the user's cache is left alone, no kernel of an earlier test is found in it, random
examples are the same in every run (new ones are the fuzzer's task), and a candidate that is dropped fails the test.
Tests run side by side, so that times are those of a busy machine: none is taken again for that, but in tests of it."""

import gc
import sys
from collections import defaultdict
from itertools import count

import pytest
from hypothesis import HealthCheck, settings

from rollergen.dropped import every_drop_raises
from rollergen.hal.files import user_specs
from rollergen.hal.files.user_cache import DIRECTORY_VARIABLE
from rollergen.store.cache import forget_failures

sys.dont_write_bytecode = False  # or each process writes the asserts of all tests anew, which takes 9 s of CPU
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # or a delay of the machine fails a test
settings.load_profile("repeatable")


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="run all cases of the long lists")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Of a list marked ``every(n)``, the first case and every n-th behind it, but for tests that are named."""
    lists = defaultdict(list)
    named = [argument.split("::", 1) for argument in config.args if "::" in argument]
    named = [(config.invocation_params.dir / path, test) for path, test in named]
    for item in () if config.option.whole or config.option.keyword else items:
        by_name = any(item.path == path and item.nodeid.split("::", 1)[1].startswith(test) for path, test in named)
        if not by_name and (mark := item.get_closest_marker("every")):
            lists[item.function, mark.args[0]].append(item)
    left_out = {item for (_, n), cases in lists.items() for at, item in enumerate(cases) if at % n}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish():
    """What is there before the first test stays, so that the collector need not look through it again and again.
    It looks seldom: there is memory enough."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


_NUMBERS = count()


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory, monkeypatch):
    """Each test begins with an empty cache in a directory of its own, and without specs of the user's; processes it
    starts share that, and keep their modules' bytecode even where the environment forbids it.  (Most tests keep
    nothing: to make a directory for each took 0.4 of the 0.9 ms of a test that does nothing.)"""
    number, directory = next(_NUMBERS), tmp_path_factory.getbasetemp()
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory / f"rollergen-cache-{number}"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv(user_specs.VARIABLE, str(directory / f"rollergen-devices-{number}"))
    forget_failures()


@pytest.fixture(autouse=True)
def _every_drop_raises():
    """A build that goes on without a candidate hides the fault from its user, not from its tests."""
    with every_drop_raises():
        yield


@pytest.fixture
def drops_allowed(_every_drop_raises):
    """For tests of what becomes of candidates that fail."""
    with every_drop_raises(False):
        yield


@pytest.fixture(autouse=True)
def _busy_as_it_is(monkeypatch):
    monkeypatch.setattr("rollergen.measure.noise.SCATTER", float("inf"))
    monkeypatch.setattr("rollergen.measure.noise.FAR", float("inf"))
