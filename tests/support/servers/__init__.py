"""Helpers of the tests in ``tests/servers``."""
