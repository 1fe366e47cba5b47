"""Crashes at every point and at random: of members, nodes, agents, stores and spilled queues."""
