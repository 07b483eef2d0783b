"""Books of a channel-day: replay, trust, recovery after gaps, and the tables derived from books."""
