"""The limiters of a launch, a file for each, in the order in which `price` lists them.

Inside one unit: multiply-adds (`arithmetic`), `issue`, the load/store `paths`, `latency`.  Outside: the caches and the
backing store (`bandwidth`).  On top of all: `misses` that nothing hides, and `entering` tiles and blocks.
"""
