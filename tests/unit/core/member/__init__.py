"""Tests of ``thence.core.member``."""
