"""What goes wrong under running servers: crashes, disks, networks, old copies, peers that are away."""
