"""Tests of what is particular to one ordering; what all have in common is in ``tests/conformance``."""
