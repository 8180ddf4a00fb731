"""Runs the kernel saved in this directory: needs Python 3.10, numpy and pyopencl, nothing else.

    python launcher.py                      the self-test, on the device the kernel was built for
    python launcher.py --any-device         on whatever OpenCL device there is
    python launcher.py --device TEXT        on one whose "PLATFORM: NAME" contains TEXT

    from launcher import Kernel
    kernel = Kernel()                       # compiles; kernel(a, b) takes and returns NumPy arrays
    c = kernel(a, b)                        # in the order of kernel.manifest["signature"]; updated arrays come first

bfloat16 and float8 arrays go in and come out as their bits (uint16, uint8), because NumPy has no such dtypes.
Exit codes of the self-test: 0 passed, 1 wrong results, 2 cannot run here.
"""

import argparse
import json
import os
import sys
import time
import warnings

try:
    import numpy as np
    import pyopencl as cl
except ImportError as error:
    if __name__ != "__main__":
        raise
    print(f"cannot run here: {error}; on a CPU it needs: pip install numpy 'pyopencl[pocl]'", file=sys.stderr)
    sys.exit(2)

HERE = os.path.dirname(os.path.abspath(__file__))
POCL = "Portable Computing Language"
LANGUAGE = "opencl"
SIGNIFICANT_BITS = {"float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3, "float32": 24, "float64": 53}
EXPONENT_BITS = {"bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 5}
"""Of the floats that NumPy lacks."""
PIECE = 1 << 20
SHORTEST_S = 1e-8
"""No launch is over so soon: events that say so count nothing (rusticl of Mesa 22: 1 ns always)."""


class CannotRun(RuntimeError):
    """No device here for the kernel, or a compiler that refuses it; the message says which."""


class Kernel:
    """The kernel of a directory, compiled for one device.  For one thread at a time.

    Constant inputs (weights) are packed at the first call, and again when other array objects are passed or after
    ``repack()``: call it when an array was changed in place.
    Arrays are copied to the device and back; ``seconds`` is the time of the last call, by the clock of ``clock``.
    """

    def __init__(self, directory=HERE, any_device=False, device=None):
        with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as file:
            self.manifest = json.load(file)
        if self.manifest["language"] != LANGUAGE:
            raise CannotRun(f"the source is {self.manifest['language']}, not {LANGUAGE}")
        self.device = find_device(self.manifest["device"], any_device, device)
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        program = self._compile(os.path.join(directory, self.manifest["source"]))
        self._kernels = [(launch, cl.Kernel(program, launch["entry"])) for launch in self.manifest["launches"]]
        self._buffers = {b["name"]: self._buffer(b) for b in self.manifest["buffers"]}
        self._packed = None
        self.seconds, self.clock = None, None

    def of_role(self, role):
        """Descriptions of the kernel's buffers: input, temporary or output."""
        return [b for b in self.manifest["buffers"] if b["role"] == role]

    def __call__(self, *arrays):
        """The outputs for these inputs: one array, or a tuple of several.  Arrays that it updates come first."""
        updated = [b for b in self.of_role("output") if b.get("updated")]
        expected = len(updated) + len(self.of_role("input"))
        if len(arrays) != expected:
            raise TypeError(f"{len(arrays)} arrays given, expected {expected}: {self.manifest['signature']}")
        targets, arrays = arrays[: len(updated)], arrays[len(updated) :]
        self._set(updated, targets)
        self._set(self.of_role("input"), arrays)
        self._run(arrays)
        results = tuple(self._read(b) for b in self.of_role("output"))
        for array, result in zip(targets, results, strict=False):
            array[...] = result.view(array.dtype)
        results = targets or results
        return results[0] if len(results) == 1 else results

    def repack(self):
        """Packs constant inputs anew at the next call."""
        self._packed = None

    def poison(self, byte):
        """Fills outputs and temporaries with a byte, so that what the kernel does not write shows."""
        for b in self.of_role("temporary") + self.of_role("output"):
            cl.enqueue_fill_buffer(self.queue, self._buffers[b["name"]], np.full(1, byte, np.uint8), 0, b["bytes"])
        self.repack()

    def _compile(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return cl.Program(self.context, text).build(["-w"])  # PoCL counts warnings on stderr
            except cl.RuntimeError as error:
                raise CannotRun(f"{self.device.name} does not compile {path}: {error}") from None

    def _buffer(self, description):
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(description["bytes"], 1))

    def _set(self, descriptions, arrays):
        for b, array in zip(descriptions, arrays, strict=True):
            if "bounds" in b:
                array, (low, high) = np.asarray(array, b["dtype"]), b["bounds"]
                if not low <= int(array) <= high:
                    raise ValueError(f"{b['name']} is {array}; expected {low} to {high}")
            lacking = str(array.dtype) in EXPONENT_BITS
            bits = array.view(storage_dtype(str(array.dtype))) if lacking else array
            if bits.dtype != storage_dtype(b["dtype"]) or list(bits.shape) != b["shape"]:
                found = f"{array.dtype}{list(array.shape)}"
                raise TypeError(f"{b['name']} is {found}; expected {b['dtype']}{b['shape']}")
            if bits.size:
                cl.enqueue_copy(self.queue, self._buffers[b["name"]], np.ascontiguousarray(bits))

    def _run(self, arrays):
        constants = [a for b, a in zip(self.of_role("input"), arrays, strict=True) if b["constant"]]
        fresh = self._packed is None or any(a is not b for a, b in zip(constants, self._packed, strict=True))
        events, start = [], time.perf_counter()
        for launch, kernel in self._kernels:
            if launch["once"] and not fresh:
                continue
            kernel.set_args(*(self._buffers[name] for name in launch["arguments"]))
            size = (launch["blocks"] * launch["threads"],)
            event = cl.enqueue_nd_range_kernel(self.queue, kernel, size, (launch["threads"],))
            if not launch["once"]:
                events.append(event)
        self.queue.finish()
        host = time.perf_counter() - start
        self._packed = constants
        own = sum(event.profile.end - event.profile.start for event in events) * 1e-9
        counted = own >= SHORTEST_S * len(events)
        self.seconds, self.clock = (own, "device's own") if counted else (host, "host's")

    def _read(self, description):
        array = np.empty(description["shape"], storage_dtype(description["dtype"]))
        if array.size:
            cl.enqueue_copy(self.queue, array, self._buffers[description["name"]])
        return array


def storage_dtype(dtype):
    """The NumPy dtype of a buffer: its own, or the bits of one that NumPy lacks."""
    if dtype not in EXPONENT_BITS:
        return np.dtype(dtype)
    return np.dtype("uint16" if SIGNIFICANT_BITS[dtype] + EXPONENT_BITS[dtype] > 8 else "uint8")


def find_device(wanted, any_device=False, text=None):
    """The OpenCL device to run on: the one the kernel was built for, unless told otherwise."""
    try:
        found = [d for platform in cl.get_platforms() for d in platform.get_devices()]
    except cl.LogicError as error:
        raise CannotRun(f"no OpenCL platform ({error}); a CPU works with: pip install 'pyopencl[pocl]'") from None
    if not found:
        raise CannotRun("no OpenCL device is here; a CPU works with: pip install 'pyopencl[pocl]'")
    here = ", ".join(map(label, found))
    if text is not None:
        found = [d for d in found if text.lower() in label(d).lower()]
    elif not any_device:
        found = [d for d in found if suits(d, wanted)]
    if not found:
        asked = f'one whose "PLATFORM: NAME" contains {text!r}'
        needs = asked if text is not None else f"{wanted['title']} ({wanted['name']})"
        raise CannotRun(f"needs {needs}; OpenCL devices here: {here}; --any-device takes any of them")
    device = min(found, key=preference) if wanted["type"] == "cpu" else found[0]
    if device.platform.name == POCL:
        mend_pocl(device)
    return device


def label(device):
    return f"{device.platform.name}: {device.name}"


def preference(device):
    """PoCL first, of its drivers the one with threads for all cores."""
    return device.platform.name != POCL, device.name.startswith("basic")


def suits(device, wanted):
    """Whether it is the kind of device that the kernel was built for: any CPU, or one of its names and platform."""
    if wanted["type"] == "cpu":
        return bool(device.type & cl.device_type.CPU)
    contains = lambda text, part: part.lower() in text.lower()
    named = any(contains(device.name, name) for name in wanted["names"])
    return named and contains(device.platform.name, wanted.get("platform", ""))


def mend_pocl(device):
    """Where PoCL does not know the processor it would compile nothing, and where it finds no linker it would end this
    process: see pocl_cpu_name.py and pocl_linker.py."""
    sys.path.insert(0, HERE)  # where this file is imported by its path, or started by python -I
    from pocl_cpu_name import UnknownProcessorError, mend_cpu_name
    from pocl_linker import LinkerMissingError, require_linker

    try:
        mend_cpu_name(device.int_ptr, device.version)
        require_linker()
    except (UnknownProcessorError, LinkerMissingError) as error:
        raise CannotRun(str(error)) from None
    finally:
        sys.path.remove(HERE)


def made_array(description, seed, position, magnitude):
    """A test input.  Element i is made from a hash (SplitMix64) of (seed << 48) + (position << 40) + i."""
    count = int(np.prod(description["shape"], dtype=np.int64))
    made = np.empty(count, storage_dtype(description["dtype"]))
    first = (seed << 48) + (position << 40)
    for start in range(0, count, PIECE):
        stop = min(start + PIECE, count)
        low, high = description.get("bounds", (0, -1))
        words = np.arange(first + start, first + stop, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words = words ^ (words >> np.uint64(31))
        if low <= high:
            made[start:stop] = low + ((words >> np.uint64(32)) % np.uint64(high - low + 1)).astype(np.int64)
        else:
            made[start:stop] = values(words, description["dtype"], magnitude)
    return made.reshape(description["shape"])


def values(words, dtype, magnitude):
    """Whole numbers up to the magnitude; without one, integers from -8 to 7 (unsigned: 0 to 15), floats in [-1, 1)."""
    if dtype == "bool":
        return words >> np.uint64(63)
    unsigned = dtype.startswith("uint")
    if magnitude is not None:
        numbers = ((words >> np.uint64(32)) % np.uint64(2 * magnitude + 1)).astype(np.int64) - magnitude
        return stored(np.abs(numbers) if unsigned else numbers, dtype)
    if dtype not in SIGNIFICANT_BITS:
        return (words >> np.uint64(60)).astype(np.int64) - (0 if unsigned else 8)
    bits = SIGNIFICANT_BITS[dtype]
    return stored((words >> np.uint64(64 - bits)).astype(np.float64) * 2.0 ** (1 - bits) - 1.0, dtype)


def stored(numbers, dtype):
    """The numbers, or their bits in a float that NumPy lacks, which holds them: 0 or normal numbers of few bits."""
    if dtype not in EXPONENT_BITS:
        return numbers
    fraction, exponent = SIGNIFICANT_BITS[dtype] - 1, EXPONENT_BITS[dtype]
    words = numbers.astype(np.float32).view(np.uint32).astype(np.int64)
    sign, size = words >> 31, (words & 0x7FFFFFFF) >> 23 - fraction
    size = np.where(size == 0, 0, size - (127 - (2 ** (exponent - 1) - 1) << fraction))
    return sign << fraction + exponent | size


def as_numbers(array, dtype):
    """An output's elements as float64; true and false as the bytes they are."""
    if dtype in EXPONENT_BITS:
        fraction, exponent = SIGNIFICANT_BITS[dtype] - 1, EXPONENT_BITS[dtype]
        return narrow_values(array.astype(np.int64), fraction, exponent, finite=dtype.endswith("fn"))
    return (array.view(np.uint8) if dtype == "bool" else array).astype(np.float64)


def narrow_values(bits, fraction, exponent, finite):
    """The numbers that bits of floats stand for.  A format without infinities has one NaN, all bits set."""
    most, bias = 2**exponent - 1, 2 ** (exponent - 1) - 1
    power, part = bits >> fraction & most, bits & 2**fraction - 1
    whole = (part + np.where(power > 0, 2**fraction, 0)).astype(np.float64)
    size = np.ldexp(whole, np.maximum(power, 1) - bias - fraction)
    beyond = (power == most) & (part == 2**fraction - 1 if finite else True)
    size = np.where(beyond, np.where((part > 0) | finite, np.nan, np.inf), size)
    return np.where(bits >> fraction + exponent, -size, size)


def problem_of(array, description, reference):
    """What is wrong with an output at the stored points, in words; "" if nothing."""
    got = as_numbers(array.reshape(-1)[reference["offsets"]], description["dtype"])
    want = np.array([float(value) for value in reference["want"]])
    with np.errstate(invalid="ignore"):
        right = np.abs(got - want) <= np.array(reference["allowed"])
    wrong = ~(right | (got == want) | (np.isnan(got) & np.isnan(want)))
    if not wrong.any():
        return ""
    at = int(np.argmax(wrong))
    place = [int(i) for i in np.unravel_index(reference["offsets"][at], description["shape"])]
    text = f"{int(wrong.sum())} of {wrong.size} compared elements of {description['name']} are wrong, such as "
    return text + f"{description['name']}{place} = {got[at]}, expected {want[at]}"


def self_test(kernel, directory=HERE):
    """Runs the stored tests; lines of text that end in PASSED or FAILED, and whether all passed."""
    with open(os.path.join(directory, "selftest.json"), encoding="utf-8") as file:
        tests = json.load(file)["tests"]
    lines, passed = [], True
    for number, test in enumerate(tests):
        updated = [b for b in kernel.of_role("output") if b.get("updated")]
        made = kernel.of_role("input") + updated
        made = [made_array(b, test["seed"], at, test["magnitude"]) for at, b in enumerate(made)]
        inputs = made[len(made) - len(updated) :] + made[: len(made) - len(updated)]
        kernel.poison(0xFF if number % 2 == 0 else 0x7F)
        results = kernel(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        for description, array in zip(kernel.of_role("output"), results, strict=True):
            reference = test["outputs"][description["name"]]
            problem = problem_of(array, description, reference)
            passed = passed and not problem
            good = f"{len(reference['offsets'])} elements of {description['name']} are right"
            lines.append(f"{test['title']}: {problem or good}")
    return [*lines, times(kernel), "PASSED" if passed else "FAILED"], passed


def times(kernel):
    saved = kernel.manifest["times"]
    measured = saved["measured_seconds"]
    built = "never measured" if measured is None else f"measured {measured * 1e6:.4g} us"
    return (
        f"{kernel.seconds * 1e6:.4g} us ({kernel.clock} time of one call) on {kernel.device.name}; when built for "
        f"{kernel.manifest['device']['name']}: predicted {saved['predicted_seconds'] * 1e6:.4g} us, {built}"
    )


def main():
    parser = argparse.ArgumentParser(description="Self-test of the kernel saved in this directory.")
    parser.add_argument("--any-device", action="store_true", help="run on whatever OpenCL device there is")
    parser.add_argument("--device", metavar="TEXT", help='run on one whose "PLATFORM: NAME" contains TEXT')
    options = parser.parse_args()
    try:
        kernel = Kernel(HERE, options.any_device, options.device)
        print(kernel.manifest["signature"])
        lines, passed = self_test(kernel)
    except CannotRun as error:
        print(f"cannot run here: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
