"""Looking after a lake: status, compaction, and forgetting inputs."""
