"""The rules of the house, checked: each check names the offending place, and is first shown a planted offender."""
