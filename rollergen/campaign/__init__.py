"""Measuring many operators on many devices: a plan, tasks that any worker performs, one store (extra ``dask``)."""
