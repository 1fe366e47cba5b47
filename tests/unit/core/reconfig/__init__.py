"""Tests of ``thence.core.reconfig``."""
