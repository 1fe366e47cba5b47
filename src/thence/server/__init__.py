"""A server: a node that serves clients and agents, within a memory budget.

May import ``agents``, ``client``, ``node`` and what is below them. Exports ``apply``, ``proxied_lines`` and ``server``.
"""
