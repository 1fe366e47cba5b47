"""Who may connect, and how both sides prove who they are: certificates, tokens, the access file, and where a server may listen.

May import ``net.protocol``, ``net.framing``, ``net.names``, ``runtime``, ``core`` and ``errors``. Exports ``access``,
``credentials``, ``exposure``, ``login``, ``tls`` and ``tokens``.
"""
