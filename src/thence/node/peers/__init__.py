"""The peers of a node: connections to them, the epoch with each, who is suspected, and who is stalled."""
