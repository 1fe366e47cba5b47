"""Commands that send and receive: send, listen, bench, chat and demo.

May import what ``cli`` may, and ``cli.servers``. Exports nothing.
"""
