"""The loop around ``member.step``: steps, commits to the store, and what follows from them."""
