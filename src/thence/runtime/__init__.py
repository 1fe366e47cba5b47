"""What every running program of thence needs: the event loop, tasks, logs, counters and files that are read again.

May import ``core`` and ``errors``.
"""
