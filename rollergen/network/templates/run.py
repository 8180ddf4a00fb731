"""Runs the model saved in this directory: needs Python 3.10, numpy and pyopencl, nothing else.

    python run.py                                   the self-test of every kernel, and the hash of the weights
    python run.py --input x.npy --output y.npy      one call; an --input for each of the model's, in their order

    from run import Model
    model = Model()                                 # model(a, b) takes and returns NumPy arrays
    y = model(a)

Exit codes: 0 done, 1 wrong results, 2 cannot run here, or not with these files.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def launcher_of(directory):
    """The module that runs the kernel saved in a directory."""
    spec = importlib.util.spec_from_file_location("launcher", os.path.join(directory, "launcher.py"))
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


class Model:
    """The model of a directory.  Each step has a kernel of its own, which packs its weights at its first call."""

    def __init__(self, directory=HERE, **device):
        with open(os.path.join(directory, "model.json"), encoding="utf-8") as file:
            self.description = json.load(file)
        content = np.fromfile(os.path.join(directory, "weights.bin"), np.uint8)
        if hashlib.sha256(content.tobytes()).hexdigest() != self.description["files"]["weights.bin"]:
            raise ValueError("weights.bin is not the file that was saved")
        self.weights = {one["name"]: weight(content, one) for one in self.description["weights"]}
        folders = [os.path.join(directory, "kernels", str(one["kernel"])) for one in self.description["steps"]]
        self.launchers = {folder: launcher_of(folder) for folder in dict.fromkeys(folders)}
        self.kernels = [self.launchers[folder].Kernel(folder, **device) for folder in folders]

    def __call__(self, *arrays):
        """The outputs for these inputs: one array, or a tuple of several."""
        inputs = self.description["inputs"]
        if len(arrays) != len(inputs):
            raise TypeError(f"{len(arrays)} arrays given, expected {len(inputs)}: {[one['name'] for one in inputs]}")
        values = dict(self.weights)
        for one, array in zip(inputs, map(np.asarray, arrays), strict=True):
            stored_as = ("bfloat16", "uint16") if one["dtype"] == "bfloat16" else (one["dtype"],)
            if list(array.shape) != one["shape"] or array.dtype.name not in stored_as:
                wanted = f"{one['dtype']}{one['shape']}"
                raise TypeError(f"{one['name']} is {array.dtype}{list(array.shape)}; expected {wanted}")
            values[one["name"]] = array
        for step, kernel in zip(self.description["steps"], self.kernels, strict=True):
            values[step["output"]["name"]] = kernel(*(values[name] for name in step["inputs"]))
        results = tuple(values[name] for name in self.description["outputs"])
        return results[0] if len(results) == 1 else results


def weight(content, described):
    dtype = np.dtype("uint16" if described["dtype"] == "bfloat16" else described["dtype"])
    count = int(np.prod(described["shape"], dtype=np.int64))
    return np.frombuffer(content, dtype, count, described["offset"]).reshape(described["shape"])


def loaded(path):
    """The array of a .npy file.  ValueError, which names the file, for anything else."""
    try:
        array = np.load(path)
    except Exception as error:  # those of zipfile and tokenize, too: np.load tells archives by their first bytes
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} holds several arrays; expected one, a .npy file")
    return array


def called(model, inputs, output):
    """One call of the model with the arrays of files; writes what it returns."""
    results = model(*map(loaded, inputs))
    several = isinstance(results, tuple)
    with open(output or f"result.np{'z' if several else 'y'}", "wb") as file:
        (np.savez if several else np.save)(file, *(results if several else (results,)))


def main():
    parser = argparse.ArgumentParser(description="Runs the model saved in this directory, or tests its kernels.")
    parser.add_argument("--input", action="append", default=[], metavar="FILE", help="a .npy file for each input")
    parser.add_argument("--output", metavar="FILE", help=".npy of one result, .npz of several")
    options = parser.parse_args()
    try:
        model = Model()
        if options.input or options.output:
            called(model, options.input, options.output)
            return 0
    except (OSError, RuntimeError, TypeError, ValueError) as error:  # RuntimeError: CannotRun of a launcher
        print(f"cannot run here: {error}", file=sys.stderr)
        return 2
    passed = True
    for folder, launcher in model.launchers.items():
        lines, right = launcher.self_test(launcher.Kernel(folder), folder)
        passed = passed and right
        print(f"kernel {os.path.basename(folder)}: {lines[-1]}")
    print("PASSED" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
