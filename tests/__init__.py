"""The tests. ``unit`` mirrors ``src``; the other folders each hold one kind of proof."""
