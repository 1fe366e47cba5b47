"""Agents: persistent objects with a name that react to one message at a time, each time wholly or not at all.

May import ``client``, ``node`` and what is below them. Exports ``admin``, ``agent``, ``engine`` and ``kinds``.
"""
