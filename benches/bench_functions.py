"""What each function of the pipeline costs: ``python benches/bench_functions.py [-k TEXT]``.

pytest-benchmark times the expression, its canonical form, construction, the model, lowering, the printed source, a
compiled closed form, a cache hit and a launch, each for operators and devices that name the test.  Further words go to
pytest; without any, the medians are kept under results/.  What a function keeps from one call to the next is forgotten
before each round where a user's next expression would not find it either.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("POCL_MAX_PTHREAD_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

try:
    import pytest
    import pytest_benchmark  # noqa: F401
except ImportError as error:
    sys.exit(f'{error.name} is missing; pip install "rollergen[test]"')

import rollergen as rg
from benches.counts import cases
from benches.results import keep
from benches.seeds.predicted import forget
from rollergen.construct import construct
from rollergen.construct.planning import row_limits
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device
from rollergen.lower import lower
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

DEVICES = ("v100", "mi50", "cpu")
TOP = 10


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return rg.load_device(request.param)


@pytest.fixture(scope="module", params=list(cases()))
def make(request: pytest.FixtureRequest) -> Callable[[], rg.Tensor]:
    return cases()[request.param]


@pytest.fixture
def graph(make: Callable[[], rg.Tensor], device: Device) -> Graph:
    return canonicalize(make(), rows=row_limits(device))


@pytest.fixture
def program(graph: Graph, device: Device) -> RProgram:
    return construct(graph, device, top_k=1)[0].program


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ROLLERGEN_CACHE_DIR", str(tmp_path))
    yield tmp_path


def _anew(benchmark: Any, function: Callable[..., object], *arguments: object, rounds: int = 15) -> None:
    """Rounds of one call each, with what was kept dropped before."""
    benchmark.pedantic(function, args=arguments, setup=forget, rounds=rounds, warmup_rounds=1)


def test_expression(benchmark: Any, make: Callable[[], rg.Tensor]) -> None:
    benchmark(make)


def test_canonical_form(benchmark: Any, make: Callable[[], rg.Tensor], device: Device) -> None:
    _anew(benchmark, lambda: canonicalize(make(), rows=row_limits(device)))


def test_construction_of_ten(benchmark: Any, graph: Graph, device: Device) -> None:
    _anew(benchmark, lambda: construct(graph, device, top_k=TOP))


def test_prediction(benchmark: Any, program: RProgram, device: Device) -> None:
    _anew(benchmark, predict, program, device)


def test_lowering(benchmark: Any, program: RProgram, device: Device) -> None:
    _anew(benchmark, lower, program, device)


def test_lowered_and_printed(benchmark: Any, program: RProgram, device: Device) -> None:
    _anew(benchmark, emit, program, device)


def test_cache_hit(benchmark: Any, make: Callable[[], rg.Tensor], cache: Path) -> None:
    """`rollergen.build` of what was built before, in another process as far as it is kept here."""
    rg.build(make(), "v100")
    _anew(benchmark, lambda: rg.build(make(), "v100"))


def test_launch(benchmark: Any) -> None:
    """A call of a kernel that has nothing to do but start: 16 elements."""
    kernel = rg.build(rg.ops.relu(rg.tensor("X", (16,))), "cpu", cache=False)
    x, y = np.zeros(16, np.float32), np.empty(16, np.float32)
    benchmark(lambda: kernel(x, out=y))


def _kept(report: Path) -> Path:
    rows = [
        {
            "function": one["name"], "median_us": 1e6 * one["stats"]["median"], "iqr_us": 1e6 * one["stats"]["iqr"],
            "rounds": one["stats"]["rounds"],
        }
        for one in json.loads(report.read_text())["benchmarks"]
    ]  # fmt: skip
    return keep("functions", {"functions": rows})


def main() -> int:
    words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        own = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "python_files=bench_functions.py"]
        shown = ["--benchmark-columns=median,iqr,rounds", "--benchmark-sort=name", f"--benchmark-json={report}"]
        status = pytest.main([str(Path(__file__).resolve()), *own, *shown, *words])
        if status == 0 and not words:
            print(f"kept in {_kept(report)}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
