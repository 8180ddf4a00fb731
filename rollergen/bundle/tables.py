"""kernel_tables.h: the manifest and the self-test as C tables, which main.c includes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollergen.bundle.references import Reference, SelfTest
from rollergen.explain.units import seconds_text


def tables(manifest: Mapping[str, Any], tests: Sequence[SelfTest]) -> str:
    """The header's text; names are identifiers (the manifest's format sees to it), texts are escaped."""
    lines = ["/* Written with the kernel: what main.c launches and compares. */", *_facts(manifest)]
    lines += ["", *_buffers(manifest["buffers"]), "", *_launches(manifest), "", *_tests(manifest["buffers"], tests)]
    return "\n".join(lines) + "\n"


def _facts(manifest: Mapping[str, Any]) -> Iterator[str]:
    times = manifest["times"]
    yield f"#define SOURCE_FILE {quoted(manifest['source'])}"
    predicted_s, measured_s = times["predicted_seconds"], times["measured_seconds"]
    yield from device_facts(manifest["signature"], manifest["device"], predicted_s, measured_s)


def device_facts(
    signature: str, device: Mapping[str, Any], predicted_s: float, measured_s: float | None
) -> Iterator[str]:
    """What opencl_device.h asks for, and says; ``device`` as in the manifest."""
    built = f"predicted {seconds_text(predicted_s)}, "
    built += "never measured" if measured_s is None else f"measured {seconds_text(measured_s)}"
    yield f"#define SIGNATURE {quoted(signature)}"
    yield f"#define TIMES {quoted(built)}"
    yield f"#define DEVICE_TITLE {quoted(device['title'])}"
    yield f"#define DEVICE_IS_CPU {int(device['type'] == 'cpu')}"
    yield f"#define DEVICE_PLATFORM {quoted(device.get('platform', ''))}"
    yield f"static const char *const DEVICE_NAMES[] = {{{', '.join(map(quoted, device['names']))}}};"


def _buffers(buffers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "static const struct buffer BUFFERS[] = {"
    for one in buffers:
        elements = math.prod(one["shape"])
        low, high = one.get("bounds", (0, -1))
        facts = f"{elements}, {int('updated' in one)}, {low}, {high}"
        yield f"    {{{quoted(one['name'])}, {one['role'].upper()}, {one['dtype'].upper()}, {facts}}},"
    yield "};"


def _launches(manifest: Mapping[str, Any]) -> Iterator[str]:
    numbers = {one["name"]: number for number, one in enumerate(manifest["buffers"])}
    for number, launch in enumerate(manifest["launches"]):
        arguments = ", ".join(str(numbers[name]) for name in launch["arguments"])
        yield f"static const int ARGUMENTS_{number}[] = {{{arguments}}};"
    yield "static const struct launch LAUNCHES[] = {"
    for number, launch in enumerate(manifest["launches"]):
        sizes = f"{launch['blocks']}, {launch['threads']}, {int(launch['once'])}, {len(launch['arguments'])}"
        yield f"    {{{quoted(launch['entry'])}, {sizes}, ARGUMENTS_{number}}},"
    yield "};"


def _tests(buffers: Sequence[Mapping[str, Any]], tests: Sequence[SelfTest]) -> Iterator[str]:
    numbers = {one["name"]: number for number, one in enumerate(buffers)}
    for t, test in enumerate(tests):
        for r, reference in enumerate(test.references):
            yield from _points(f"POINTS_{t}_{r}", reference)
        yield f"static const struct expectation EXPECTATIONS_{t}[] = {{"
        for r, one in enumerate(test.references):
            yield f"    {{{numbers[one.output]}, {len(one.offsets)}, POINTS_{t}_{r}}},"
        yield "};"
    yield "static const struct test TESTS[] = {"
    for t, test in enumerate(tests):
        sizes = f"{test.seed}, {test.magnitude or 0}, {len(test.references)}"
        yield f"    {{{quoted(test.title)}, {sizes}, EXPECTATIONS_{t}}},"
    yield "};"


def _points(name: str, reference: Reference) -> Iterator[str]:
    yield f"static const struct point {name}[] = {{"
    for offset, want, allowed in zip(reference.offsets, reference.want, reference.allowed, strict=True):
        yield f"    {{{offset}, {_number(want)}, {_number(allowed)}}},"
    if not reference.offsets:
        yield "    {0, 0, 0},"  # of an output without elements, which is not compared: C has no empty arrays
    yield "};"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NAN"
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}INFINITY"


def quoted(text: str) -> str:
    """A C string literal, written by JSON, whose escapes C shares.  Non-ASCII characters stay as they are, control
    characters become spaces, and ``??``, which could begin a trigraph, is split."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return json.dumps(plain, ensure_ascii=False).replace("??", '?""?')
