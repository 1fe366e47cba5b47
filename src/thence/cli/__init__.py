"""The command line: one file per command, registered in one table in ``main.py``.

Rules: a command reads its options, calls the package that does the work and prints what came back. Nothing here
decides anything about messages, and nothing below imports it.

May import everything. Exports ``main``.
"""
