"""Helpers of the tests in ``tests/pipeline``."""
