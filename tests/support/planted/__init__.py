"""Mistakes that tests plant, to show that they are found."""
