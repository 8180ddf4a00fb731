"""How long installing takes, and how much disk, in fresh environments: ``python benches/bench_install.py [EXTRA ...]``.

For each extra of a clone of the commit (default: cpu and test): seconds of ``pip install``, with pip's cache as it is,
bytes of the environment; of cpu also the seconds of the README's first command, with an empty cache of kernels.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.results import ROOT, keep

FIRST = ("build", "matmul", "m=1024", "n=1024", "k=1024")


def seconds_of(*words: str, **settings: Any) -> float:
    began = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **settings)
    return time.perf_counter() - began


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def installed(extra: str, work: Path) -> dict[str, Any]:
    tree, environment = work / f"tree-{extra}", work / f"venv-{extra}"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = {"cwd": tree, "env": {**bare, "XDG_CACHE_HOME": str(work / f"cache-{extra}"), "PIP_CACHE_DIR": pip_cache()}}
    row: dict[str, Any] = {"extra": extra}
    row["install_s"] = seconds_of(f"{environment}/bin/pip", "install", "--quiet", "-e", f".[{extra}]", **where)
    row["gigabytes"] = size_of(environment) / 1e9
    if extra == "cpu":
        row["first_command_s"] = seconds_of(f"{environment}/bin/rollergen", *FIRST, **where)
    return row


def pip_cache() -> str:
    words = [sys.executable, "-m", "pip", "cache", "dir"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extras", nargs="*", default=["cpu", "test"], metavar="EXTRA")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for extra in options.extras:
            rows.append(installed(extra, Path(work)))
            print(rows[-1])
    keep("install", {"load average as it was written": os.getloadavg()[1], "rows": rows})


if __name__ == "__main__":
    main()
