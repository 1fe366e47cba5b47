"""What a fabric is made of: domains, relays, links, their options, and the route of a message.

May import ``core.ordering`` and ``core.wire``. Exports ``ack_options``, ``addresses``, ``checks``, ``domain``, ``durations``,
``link``, ``model``, ``routing`` and ``toml``.
"""
