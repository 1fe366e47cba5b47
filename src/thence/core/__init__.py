"""The protocols, without I/O: no sockets, files, clocks, chance, threads or loops.

The same inputs give the same outputs, always. ``core.member`` is the way in. Its layers, from the top:
``member``; ``places``; ``reconfig``, ``failover`` and ``stability``; ``transport``; ``topology``; ``ordering``; ``epochs``;
``wire``.

May import ``errors``, msgspec and what is pure of the standard library. Exports nothing.
"""
