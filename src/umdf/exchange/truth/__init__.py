"""What really happened: the books of any moment, and the tables that results are checked against."""
