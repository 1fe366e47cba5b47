"""Tests of ``thence.net``."""
