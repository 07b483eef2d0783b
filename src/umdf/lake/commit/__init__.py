"""Commits of a lake: log, lease, ledger, Delta tables, repair and vacuum."""
