"""What tests know of the pages of the documentation."""
