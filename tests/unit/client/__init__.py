"""Tests of ``thence.client``."""
