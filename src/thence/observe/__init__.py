"""What a running server shows over HTTP: metrics, and whether it is healthy and ready.

May import ``server`` and what is below it. Exports ``http``.
"""
