"""What every running program of thence needs: the event loop, logs, limits on offenders, counters and files.

May import ``core`` and ``errors``. Exports ``checksum``, ``counters``, ``deadline``, ``event_loop``, ``files``, ``logs``,
``memory``, ``offenders`` and ``printable``.
"""
