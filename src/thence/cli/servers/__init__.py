"""Commands for those who run servers: serve, up, status, top, client, agent, token, store and topology.

May import what ``cli`` may. Exports ``up``.
"""
