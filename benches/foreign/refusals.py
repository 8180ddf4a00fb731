"""Refusals of rollergen's own that torch's samples meet; those of importers are in `rollergen.importers.refusals`."""

from __future__ import annotations

from rollergen.errors import DtypeError, ExpressionError, RollergenError, ShapeError

RULES: tuple[tuple[str, type[RollergenError], str, str], ...] = (
    ("sub", DtypeError, r"- of a condition", "conditions"),
    ("nn.functional.batch_norm", ExpressionError, r"training is True with", "state"),
    ("nn.functional.embedding", ExpressionError, r"max_norm is", "state"),
    ("nn.functional.scaled_dot_product_attention", ExpressionError, r"dropout_p is", "random"),
    ("nn.functional.instance_norm", ExpressionError, r"use_input_stats is True with", "state"),
    ("nn.functional.local_response_norm", DtypeError, r"expected a floating dtype", "integer means"),
    ("nn.functional.one_hot", ShapeError, r"num_classes is -1", "data-dependent shape"),
    (r"nn.functional.(avg_pool\dd|interpolate)", DtypeError, r"expected a floating dtype", "integer means"),
)
"""Refusals of rollergen's own: torch's operator (a regular expression), the kind of error, its text, and the reason."""
