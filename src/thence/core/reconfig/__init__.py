"""How a running fabric changes its topology: the protocol, who leads it, and what members owe each other before it.

May import ``core.transport`` and what is below it. Exports ``border``, ``concern``, ``coordinator``, ``diff``, ``flush``,
``protocol`` and ``retention``.
"""
