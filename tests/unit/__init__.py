"""Tests of one module each, laid out as ``src/thence`` is. The rules of the whole tree are checked in ``tests/house``."""
