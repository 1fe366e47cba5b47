"""Stores seen from outside, while no node or another process runs on them: inspection, backup, and what fits them."""
