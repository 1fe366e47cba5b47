"""The parts of an endpoint: each with its own state and rules, put together by ``thence.client.endpoint``.

May import ``client.message``, ``node.spans``, ``net``, ``runtime`` and ``core``. Exports ``acks``,
``deliveries``, ``departure``, ``inbox``, ``outbox``, ``requests``, ``safe_waits`` and ``state``.
"""
