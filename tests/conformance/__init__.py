"""One suite for each interface with more than one implementation: orderings, transports, stores, traces, endpoints.

A new ordering is picked up with no edit; of the others, each suite has a table to add to. There is no suite for clocks: time is
an argument of each step, so the simulator and a server's driver give it and nothing implements it.
"""
