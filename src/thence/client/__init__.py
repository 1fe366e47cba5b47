"""What programs use: the client of a server, its blocking form, and a member inside the program.

May import ``node``, ``net``, ``runtime`` and ``core``. The public names are in ``thence``. Exports ``admin``, ``blocking``,
``client``, ``embedded``, ``endpoint``, ``message`` and ``values``.
"""
