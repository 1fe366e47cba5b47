"""Tests of ``thence.net.security``."""
