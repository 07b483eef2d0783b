"""Where tasks run: Spark sessions and clusters, their Java and memory, or processes of this machine."""
