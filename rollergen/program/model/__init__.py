"""Reader 1 of the rProgram: its predicted time."""

from rollergen.program.model.prediction import (
    Limiter,
    Prediction,
    StagePrediction,
    StagePrice,
    least_seconds,
    multiply_add_share,
    predict,
    predict_stage,
    price_program,
    price_stage,
    with_launches,
)
from rollergen.program.model.together import figures_of, keep_price, price_batches, price_stages

__all__ = [
    "Limiter", "Prediction", "StagePrediction", "StagePrice", "figures_of", "keep_price",
    "least_seconds", "multiply_add_share", "predict", "predict_stage", "price_batches", "price_program", "price_stage",
    "price_stages", "with_launches",
]  # fmt: skip
