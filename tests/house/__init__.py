"""The rules of the house, measured on the tree itself."""
