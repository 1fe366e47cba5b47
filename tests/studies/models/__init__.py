"""One file for each model of a study."""
