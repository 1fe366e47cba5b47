"""Tests of ``thence.trace.evidence``."""
