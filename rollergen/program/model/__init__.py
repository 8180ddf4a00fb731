"""Reader 1 of the rProgram: its predicted time."""

from rollergen.program.model.chains import registers_of
from rollergen.program.model.matrix_chains import registers_of_chain, registers_of_thread
from rollergen.program.model.prediction import multiply_add_share, predict, predict_stage
from rollergen.program.model.price import Limiter, Prediction, Price, StagePrediction, least_seconds, price_batch
from rollergen.program.model.together import keep_price, price_batches, price_stages, with_launches

__all__ = [
    "Limiter", "Prediction", "Price", "StagePrediction", "keep_price", "least_seconds", "multiply_add_share",
    "predict", "predict_stage", "price_batch", "price_batches", "price_stages", "registers_of", "registers_of_chain",
    "registers_of_thread", "with_launches",
]  # fmt: skip
