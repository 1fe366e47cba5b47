"""Strangers, clients without rights and captured servers: what they can do to others, and what they cannot."""
