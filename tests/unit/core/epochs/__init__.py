"""Tests of ``thence.core.epochs``."""
