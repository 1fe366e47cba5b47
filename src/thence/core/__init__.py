"""The protocols, and nothing but the protocols.

Rules: no sockets, files, clocks, randomness or coroutines in here. Time and chance come in as arguments, so that
the same inputs give the same outputs, always. A test walks the imports and says so.
"""
