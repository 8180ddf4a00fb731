"""The program that scale-up and scale-out construct, and how far it is from the best of the aligned space."""

from __future__ import annotations

from rollergen.construct.candidate import Candidate, best, candidate
from rollergen.construct.choose import choice, limited
from rollergen.construct.fit import room_bytes
from rollergen.construct.forms import Form, forms, needs_packing
from rollergen.construct.roles import CONTRACTION, kind_of
from rollergen.construct.scale_out import panel_plan, scale_out, thread_plan
from rollergen.construct.scale_up import grow_layer, grow_registers, staging_layers
from rollergen.construct.serial_space import Packing, Structure, exact
from rollergen.construct.thread_space import staged_loads
from rollergen.construct.tile_programs import grid_notes, tile_programs
from rollergen.dropped import collected_drops, plan_text, standing
from rollergen.expr.definition import Definition
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device
from rollergen.options import BuildOptions
from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.plan import ContractionPlan
from rollergen.tile.rules import AlignmentRules


def growth_notes(graph: Graph, device: Device, options: BuildOptions = BuildOptions()) -> tuple[str, ...]:
    """For each definition of `graph`, what constraints rejected; for each contraction the grown tiles, and their
    distance from the model's own optimum.  On bulk-synchronous machines, how many grids were priced."""
    with collected_drops():  # who built the kernel has told of them
        return _growth_notes(graph, limited(device, options), options.rules)


def _growth_notes(graph: Graph, device: Device, rules: AlignmentRules) -> tuple[str, ...]:
    if device.kind.supersteps and tile_programs(graph, device, 1):
        return grid_notes(graph, device)
    room, notes = room_bytes(graph, device), []
    for definition in graph.definitions:
        found = choice(definition, device, rules, 10, room)
        notes.append(f"{definition.output.name}: {found.account.text()}")
        grown = grown_candidate(definition, device, rules) if kind_of(definition) == CONTRACTION else None
        if grown is not None:
            away = grown.seconds / found.candidates[0].seconds - 1
            notes.append(
                f"{definition.output.name}: grown by data reuse, {tile_text(grown)} ({grown.form}), predicted "
                f"{grown.seconds * 1e6:.4g} us: {away:+.1%} against the best of the whole aligned space"
            )
    return tuple(notes)


def tile_text(one: Candidate) -> str:
    return " x ".join(f"{axis} {extent}" for axis, extent in one.key[1])


def grown_candidate(definition: Definition, device: Device, rules: AlignmentRules) -> Candidate | None:
    """The best program on the way of growth, over all forms of a contraction; None where no step stands."""
    build = _serial if not device.kind.threads else _threaded
    found = [one for form in forms(definition, device) for one in build(form, device, rules)]
    return next(iter(best(found, 1)), None)


def _serial(form: Form, device: Device, rules: AlignmentRules) -> list[Candidate]:
    packed = tuple(needs_packing(form.definition, form.roles))

    def made(plan: ContractionPlan) -> Candidate:
        packing = Packing(form, plan.rn * plan.lanes, packed, rules.pad_value)
        return exact(Structure(form, plan.lanes, plan.rn, packing, plan.order), plan, device, rules)

    return [one for _, one in standing(grown_plans(form, device, rules), made, plan_text)]


def _threaded(form: Form, device: Device, rules: AlignmentRules) -> list[Candidate]:
    def made(plan: ContractionPlan) -> Candidate:
        return candidate(form.name, (contraction_stage(form.definition, form.roles, plan, device, rules),), (), device)

    return [one for _, one in standing(grown_plans(form, device, rules), made, plan_text)]


def grown_plans(form: Form, device: Device, rules: AlignmentRules) -> list[ContractionPlan]:
    """One plan for each pair of steps (register tile, tile of the outermost layer grown), distinct ones."""
    definition, roles = form.definition, form.roles
    staged = staged_loads(definition, roles) if device.kind.threads else ()
    plans: dict[ContractionPlan, None] = {}
    for small in grow_registers(definition, roles, device)[::2]:
        for layer in staging_layers(device):
            for large in grow_layer(definition, roles, device, rules, small.tile, layer)[::2]:
                outer = scale_out(definition, roles, device, small.tile, large.tile)
                if device.kind.lockstep:
                    plans.setdefault(thread_plan(roles, device, rules, small.tile, outer, staged))
                else:
                    plans.setdefault(panel_plan(definition, roles, device, small.tile, outer, staged))
    return list(plans)
