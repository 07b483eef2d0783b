"""Publishing the journal of the bulk market: records → units and events → packets → lines → files."""
