"""Fabrics that change while they run, and agents that live in them."""
