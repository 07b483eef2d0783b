"""The replayers: what was published, kept to be sent again over FIX 4.4."""
