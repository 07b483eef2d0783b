"""Captures and raw streams as decoded messages of either protocol, for `umdf decode` and `umdf explain`."""
