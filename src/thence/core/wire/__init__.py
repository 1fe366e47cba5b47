"""What travels between members and what a member writes down: messages, frames, records and sets of numbers.

Imports nothing of thence but ``errors``. Exports ``messages``, ``number_set`` and ``records``.
"""
