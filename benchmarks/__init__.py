"""Measured ratios beside their targets: `make bench`."""
