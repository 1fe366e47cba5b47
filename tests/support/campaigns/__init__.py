"""Campaigns on running servers: faults, crashes and attacks, and the verdict on each round."""
