"""Clients at their server: what each sends, what it gets, and in which order they are served.

May import all of ``node``, and what is below it. Exports ``fair_turns``, ``in_flight``, ``large_turns`` and ``session``.
"""
