"""Connections and what is said on them: framing, the protocol, TLS, tokens, names and access rights.

May import ``runtime``, ``core`` and ``errors``. Exports ``byte_pool``, ``control``, ``framing``, ``names``, ``protocol``,
``proxy``, ``questions`` and ``reconnect``.
"""
