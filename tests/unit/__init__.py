"""Tests of one module each, laid out as ``src/thence`` is, and ``test_house.py`` for the rules of the whole tree."""
