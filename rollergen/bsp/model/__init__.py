"""The model of bulk-synchronous programs: memory, exchanged bytes and clocks of every superstep, in closed form."""

from rollergen.bsp.model.prediction import predict_bulk
from rollergen.bsp.model.supersteps import BulkFacts, StepFacts, at_home, bulk_facts

__all__ = ["BulkFacts", "StepFacts", "at_home", "bulk_facts", "predict_bulk"]
