"""A network with faults between an exchange and its clients: seeded, and the same in memory and over sockets."""
