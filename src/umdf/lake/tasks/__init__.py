"""What runs on a worker: survey, decode, looping streams, channel, books, and what these tasks share."""
