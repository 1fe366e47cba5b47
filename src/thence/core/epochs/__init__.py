"""Epochs of a link: which numbers two peers may compare, and how they agree on that when they meet.

Imports ``core.wire`` at most. Exports ``epoch``, ``handshake``, ``progress``, ``reach`` and ``statement``.
"""
