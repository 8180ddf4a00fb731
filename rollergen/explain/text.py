"""An explanation's facts as plain text, whole or in brief."""

from __future__ import annotations

from rollergen.explain.assumed import joining
from rollergen.explain.explanation import Facts, seconds_text, tile_text
from rollergen.gate.footprint import Footprint, bytes_text

NOTHING = "no output has elements: nothing is launched"
TAKEN = "as the ids say, which nobody knows before the call; the model has as many rows differ as can"


def brief_text(facts: Facts) -> str:
    """The explanation's heart: where it runs, tiles, limiters, and why the runner-up lost."""
    lines = [_where(facts), *([] if facts["stages"] else [f"  {NOTHING}"])]
    for stage in facts["stages"]:
        heading = [_heading(stage)] if len(facts["stages"]) > 1 else []
        lines += [*heading, *_brief_tile_lines(stage)]
        if stage["spilled_registers"]:
            lines.append(f"  {stage['registers']:.4g} registers, {stage['spilled_registers']:.3g} spilled")
        lines += _time_lines(stage, least=0.1)
    second = facts["runner_up"]
    lost = _runner_up_lines(second)[:3]
    alike = second is not None and any(one["chosen"] and one["tile"] == second["tile"] for one in facts["candidates"])
    return "\n".join([*lines, *(line for line in lost if alike or not line.startswith(_DIFFERS))])


_DIFFERS = "  what differs: "


def own_time(seconds: float | None) -> str:
    """What the device says that a call took."""
    return "by the host's clock" if seconds is None else f"device's own time {seconds_text(seconds)}"


def explanation_text(facts: Facts) -> str:
    """The explanation as plain text."""
    lines = [_where(facts)]
    measured = "not measured"
    if facts["measured_seconds"] is not None:
        measured = f"measured {seconds_text(facts['measured_seconds'])} ({own_time(facts['event_seconds'])})"
    lines.append(f"  predicted {seconds_text(facts['predicted_seconds'])}, {measured}")
    lines += [_profiling_line(facts["profiling"])] if facts["profiling"] else []
    lines += [f"  limiters join: {joining(ways)}"] if (ways := _ways(facts)) else []
    lines += [f"  figures of the spec that are assumed and move this time: {', '.join(facts['assumed']) or 'none'}"]
    lines.append(f"  memory of a call: {Footprint(facts['memory_bytes'])}")
    lines += [f"  presence: {facts['presence']}"] if "presence" in facts else []
    uncut = "no cut: one stage for each output" if facts["stages"] else NOTHING
    lines += [f"  cut: {cut}" for cut in facts["cuts"]] or [f"  {uncut}"]
    lines += [f"  construction: {note}" for note in facts["construction"]]
    lines += [f"  failed: {_failed_line(one)}" for one in facts["candidates"] if one["state"] == "failed"]
    for stage in facts["stages"]:
        lines += ["", *_stage_lines(stage)]
    if second := _runner_up_lines(facts["runner_up"]):
        lines += ["", *second]
    return "\n".join(lines)


def _ways(facts: Facts) -> set[str]:
    return {limiter["how"] for stage in facts["stages"] for limiter in stage["limiters"]}


def _where(facts: Facts) -> str:
    device = facts["device"]
    return f"On {device['title']} ({device['name']}, {device['units']} units)"


def _failed_line(candidate: Facts) -> str:
    return f"candidate {candidate['rank'] + 1}, tile {candidate['tile']}: {'; '.join(candidate['problems'][:2])}"


def _heading(stage: Facts) -> str:
    once = " (once, at the first call)" if stage["once"] else ""
    return f"Stage {stage['name']}: {', '.join(stage['reads'])} -> {stage['writes']}{once}"


def _tile_lines(stage: Facts) -> list[str]:
    width = max(len(one["level"]) for one in stage["tiles"])
    return ["  tiles", *(f"    {one['level']:{width}}  {tile_text(one['tile'])}" for one in stage["tiles"])]


def _brief_tile_lines(stage: Facts) -> list[str]:
    """A line for each operand, with its tile in every layer; accumulators where they are not the whole thread's."""
    rows: dict[str, list[str]] = {}
    for one in stage["tiles"]:
        name, _, layer = one["level"].partition(" in ")
        if name != "accumulators" or one["tile"] != stage["tiles"][-2]["tile"]:
            rows.setdefault(name, []).append(f"{layer} {tile_text(one['tile'])}".lstrip())
    width = max(map(len, rows))
    return ["  tiles", *(f"    {name:{width}}  {', '.join(tiles)}" for name, tiles in rows.items())]


def _time_lines(stage: Facts, least: float = 0.0) -> list[str]:
    """The limiters, longest first; those below the share ``least`` of the one that binds in one line."""
    lines = [f"  time {seconds_text(stage['seconds'])}, bound by {stage['binding']}"]
    limiters = sorted(stage["limiters"], key=lambda one: -one["seconds"])
    shown = [one for one in limiters if one["seconds"] >= least * limiters[0]["seconds"]]
    width = max(len(limiter["name"]) for limiter in shown)
    for limiter in shown:
        mark = "  <- binds" if limiter["name"] == stage["binding"] else ""
        times = f"{seconds_text(limiter['seconds']):>10}  {limiter['clocks']:>12.4g} clocks"
        lines.append(f"    {limiter['name']:{width}}  {times}  {limiter['how']}{mark}")
    if rest := [f"{one['name']} {seconds_text(one['seconds'])}" for one in limiters[len(shown) :]]:
        lines.append(f"    smaller: {', '.join(rest)}")
    return lines


def _blocks_text(stage: Facts) -> str:
    blocks = "1 block" if stage["blocks"] == 1 else f"{stage['blocks']} blocks"
    waves = "1 wave" if stage["waves"] == 1 else f"{stage['waves']:.4g} waves"
    if stage["threads"] == 1:  # of a CPU: a core runs one block at a time
        return f"{blocks} in {waves}"
    resident = f"{stage['resident_blocks']} resident, occupancy {stage['occupancy']:.0%}"
    return f"{blocks} of {stage['threads']} threads in {waves}, {resident}"


def _stage_lines(stage: Facts) -> list[str]:
    lines = [_heading(stage), *_tile_lines(stage)]
    lines += [f"  {text}" for text in stage["decisions"]]
    lines.append(f"  {_blocks_text(stage)}")
    if stage["alone"]:
        lines.append("  the calling thread runs them all: waking those of the other cores would take it longer")
    memory = f", {bytes_text(stage['shared_bytes'])} of block memory" if stage["shared_bytes"] else ""
    spilled = f", {stage['spilled_registers']:.3g} spilled" if stage["spilled_registers"] else ""
    lines.append(f"  {stage['registers']:.4g} registers{spilled}{memory}")
    lines += _time_lines(stage)
    if stage["traffic_bytes"]:
        lines.append("  bytes that leave each layer")
        lines += [f"    {name}: {bytes_text(count)}" for name, count in stage["traffic_bytes"].items()]
    lines.append("  bytes of each access, every block fetching its own")
    lines += [
        f"    {one['role']} {one['tensor']}: "
        + (f"{bytes_text(one['bytes'])} in {one['tiles']} tiles" if one["tiles"] else TAKEN)
        for one in stage["accesses"]
    ]
    if stage["closed_forms"]:
        lines.append("  closed forms for the block's tile")
        lines += [f"    {line}" for line in stage["closed_forms"]]
    return lines


def _runner_up_lines(second: Facts | None) -> list[str]:
    if second is None:
        return []
    differs = [f"{_DIFFERS}{'; '.join(second['differs'])}"] if second["differs"] else []
    lines = [f"Runner-up: tile {second['tile']}", *differs, f"  why it lost: {second['why']}"]
    shown = [one for one in second["limiters"] if one["difference"]]
    width = max((len(one["name"]) for one in shown), default=0)
    for one in shown:
        sign = "+" if one["difference"] > 0 else "-"
        lines.append(
            f"    {one['name']:{width}}  {seconds_text(one['runner_up']):>10} against "
            f"{seconds_text(one['chosen']):>10}  {sign}{seconds_text(abs(one['difference']))}"
        )
    return lines


def _profiling_line(facts: Facts) -> str:
    parts = {name: facts[f"{name}_seconds"] for name in ("compile", "check", "timing")}
    total = sum(parts.values()) or 1.0
    shares = ", ".join(f"{name} {seconds_text(s)} ({s / total:.0%})" for name, s in parts.items())
    copied = ""
    if facts["sent_bytes"]:
        both = f"{bytes_text(facts['sent_bytes'])} to the device, {bytes_text(facts['fetched_bytes'])} back"
        copied = f", the check copied {both}"
    noise = "" if facts["spread_seconds"] is None else f", quartiles {seconds_text(facts['spread_seconds'])} apart"
    clock = f", {facts['clock']}" if facts["clock"] else ""
    busy = f", noisy: {facts['noisy']}" if facts["noisy"] else ""
    how = f"{facts['rounds']} rounds with {facts['caches']} caches{noise}{clock}{busy}"
    memory = f"memory at most {Footprint(facts['memory_bytes'])}"
    return f"  {facts['candidates']} candidates: {shares}{copied}; {how}; {memory}"
