"""One suite for each interface with more than one implementation: orderings, clocks, transports, ack policies, stores, traces,
laws of delays, endpoints.

A new ordering is picked up with no edit; of the others, each suite has a table to add to. Time has no suite: it is an argument of
each step, so the simulator and a server's driver give it and nothing implements it.
"""
