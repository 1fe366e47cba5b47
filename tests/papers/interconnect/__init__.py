"""Claims of interconnect about relays that die for good."""
