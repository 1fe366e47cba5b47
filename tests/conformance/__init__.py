"""The one suite that every ordering in the registry has to pass. A new ordering is picked up with no edit."""
