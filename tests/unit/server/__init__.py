"""Tests of ``thence.server``."""
