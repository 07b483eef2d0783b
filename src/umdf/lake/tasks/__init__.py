"""Tasks that run on workers: survey, decode, looping streams, channel, books, and their shared code."""
