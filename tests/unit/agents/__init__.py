"""Tests of ``thence.agents``."""
