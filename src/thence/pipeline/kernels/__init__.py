"""Kernels: pure functions on Arrow and numpy arrays. No Spark, no files, no clocks."""
