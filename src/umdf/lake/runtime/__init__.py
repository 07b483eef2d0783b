"""Runs tasks: Spark sessions and clusters, their Java and memory, or local processes."""
