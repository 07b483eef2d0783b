"""What the simulated exchange lists: the catalogue, its generator, and the definitions it publishes."""
