"""All tables of ONNX operators, entered: what an importer of ONNX models needs of this folder."""

from benches.foreign import (  # noqa: F401
    onnx_attention,
    onnx_contractions,
    onnx_linear,
    onnx_pointwise,
    onnx_recurrent,
    onnx_reductions,
    onnx_selections,
    onnx_views,
)
from benches.foreign.importing import bound, imported

__all__ = ["bound", "imported"]
