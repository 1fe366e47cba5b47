"""Tests of ``thence.node``."""
