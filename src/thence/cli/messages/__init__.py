"""Commands that send and receive: send, listen, bench, chat and demo."""
