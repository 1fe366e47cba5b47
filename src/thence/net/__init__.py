"""Connections and what is said on them: framing, the protocol, TLS, tokens, names and access rights.

May import ``runtime``, ``core`` and ``errors``.
"""
