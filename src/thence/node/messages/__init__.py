"""What becomes of messages at a node: accepted from clients and peers, put into mailboxes, acknowledged, sent back.

May import ``node.peers``, ``node.directory``, ``node.driver`` and what is below them. Exports ``acknowledgements``, ``arrivals``,
``closing_notices``, ``dispatch``, ``handover``, ``intake``, ``removal`` and ``returns``.
"""
