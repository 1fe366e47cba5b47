"""Tests of ``thence.storage``."""
