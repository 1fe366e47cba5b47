"""Tests of ``thence.core.stability``."""
