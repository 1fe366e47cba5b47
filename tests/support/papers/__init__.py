"""Helpers of the tests in ``tests/papers``."""
