"""Stores seen from outside, while no node or another process runs on them: inspection, backup, and what fits them.

May import ``node.messages``, ``node.options`` and what is below them. Exports ``backup`` and ``inspection``.
"""
