"""Whole fabrics at random: routes, changes, takeover, standstill, and the judge of them."""
