"""The live client."""
