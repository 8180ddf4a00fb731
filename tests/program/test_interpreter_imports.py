"""The interpreter is evidence because it shares nothing with what it is compared with."""

from tests.imports import modules, reachable

FORBIDDEN = (
    "rollergen.tile.closed_forms",
    "rollergen.tile.exact_traffic",
    "rollergen.tile.affine_traffic",
    "rollergen.tile.gather_traffic",
    "rollergen.tile.guarded_access",
    "rollergen.tile.segments",
    "rollergen.tile.axis_tiles",
    "rollergen.program.model",
    "rollergen.construct",
    "rollergen.lower",
    "rollergen.emit",
    "rollergen.measure",
)


def test_the_interpreter_imports_neither_closed_forms_nor_model_nor_lowering_not_even_through_others():
    own = [name for name in modules() if name.startswith(("rollergen.program.interpreter", "rollergen.bsp.interpreter"))]
    assert "rollergen.program.interpreter.execute" in own
    assert sorted(name for name in reachable(*own) if name.startswith(FORBIDDEN)) == []


def test_the_check_of_programs_needs_no_model_either():
    assert sorted(name for name in reachable("rollergen.program.check.program") if name.startswith(FORBIDDEN)) == []


def test_following_imports_finds_what_the_model_needs():
    """The two tests above could not fail if nothing were followed."""
    assert "rollergen.expr.index" in reachable("rollergen.program.model.prediction")
    assert "rollergen.program.rprogram" in reachable("rollergen.program.check.program")
