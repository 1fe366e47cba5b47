"""Tests of ``thence.core.topology``."""
