"""Claims about what something costs, counted or timed in simulation."""
