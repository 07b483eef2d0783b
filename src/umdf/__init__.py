"""B3's Unified Market Data Feed, end to end: codecs, captures, market model, exchange, client and lakehouse."""

__version__ = "0.1.0"
