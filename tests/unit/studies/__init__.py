"""Tests of ``thence.studies``."""
