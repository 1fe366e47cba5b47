"""Tests of ``thence.core``, a file per module."""
