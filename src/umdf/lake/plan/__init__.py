"""What the driver decides: inputs, streams, spans, how far a day goes, and the results of a channel-day."""
