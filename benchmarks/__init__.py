"""Benchmarks: each file measures one thing, against a peer or against itself, as ratios taken in one run.

Rules: both sides do the same work and prove it; measurements alternate, so that a busy machine slows both; the best
of several counts, because noise only ever adds.
"""
