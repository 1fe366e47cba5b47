"""Clients at their server: what each sends, what it gets, and in which order they are served."""
