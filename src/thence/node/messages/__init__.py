"""What becomes of messages at a node: accepted from clients and peers, put into mailboxes, acknowledged, sent back."""
