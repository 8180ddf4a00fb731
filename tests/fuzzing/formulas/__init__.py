"""The second generator: random formulas of `rg.compute` with quasi-affine reads, and a NumPy evaluation of its own.

`programs` draws them from `indices`, `scalars` and `reductions`; `reference` evaluates them with `bounds`, never with
rollergen; `trials` compares; `shrink` makes failures small.
"""
