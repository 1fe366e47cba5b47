"""Properties that hold for every input, tried on a great many."""
