"""How frames get from one member to another: channels, windows, acknowledgements, retransmission, queues that spill.

May import ``core.topology``, ``core.ordering``, ``core.epochs`` and ``core.wire``. Exports ``acks``, ``base``, ``channel``,
``channels``, ``direct``, ``quotas``, ``spill_queue`` and ``window``.
"""
