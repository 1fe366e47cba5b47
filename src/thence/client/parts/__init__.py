"""The parts of an endpoint: each with its own state and rules, put together by ``thence.client.endpoint``.

May import ``client.message``, ``node.spans``, ``net``, ``runtime`` and ``core``. Nothing here is public.
"""
