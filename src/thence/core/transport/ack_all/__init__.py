"""A transport in which each member acks to everybody: its own stream, copies of others', what is missing, and lanes.

May import what ``core.transport`` may. Exports ``claims``, ``copies``, ``state`` and ``transport``.
"""
