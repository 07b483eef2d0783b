"""The report of a trading date, as JSON and as an HTML page, and charts."""
