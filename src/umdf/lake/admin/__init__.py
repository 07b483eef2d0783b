"""Maintenance of a lake: status, compaction, and removal of inputs."""
