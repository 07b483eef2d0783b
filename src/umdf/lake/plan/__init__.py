"""Planning on the driver: inputs, streams, spans, frontiers, and the results of a channel-day."""
