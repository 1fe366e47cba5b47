"""One file per paper: each test cites the claim, the section, and where this project departs from it."""
