"""The model of bulk-synchronous programs: memory, exchanged bytes and clocks of every superstep, in closed form."""

from rollergen.bsp.model.prediction import predict_bulk
from rollergen.bsp.model.supersteps import BulkFacts, StepFacts, bulk_facts, without_exchange

__all__ = ["BulkFacts", "StepFacts", "bulk_facts", "predict_bulk", "without_exchange"]
