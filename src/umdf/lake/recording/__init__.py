"""What packets show of their recording: copies in other files, contradictions, its clock, losses in loops."""
