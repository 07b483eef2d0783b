"""Loads a growing recording into a lake, with Structured Streaming."""
