"""Tests of ``thence.core.wire``."""
