"""Tests of ``thence.core.transport``."""
