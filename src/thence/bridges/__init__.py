"""Where a fabric meets other systems: each bridge is a client or a member whose far side is somebody else's."""
