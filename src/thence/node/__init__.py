"""One member that runs: driver, store, directory, mailboxes and peers. A server and an embedded member are both made of one.

May import ``storage``, ``net``, ``runtime``, ``trace`` and ``core``. Exports ``budget``, ``listener``, ``node``, ``options``,
``reconfiguration`` and ``spans``.
"""
