"""Tests of ``thence.core.places``."""
