"""The Spark data source "umdf": captures as DataFrames, without a lake."""
