"""What packets tell about their recording: copies in other files, contradictions, its clock, losses in loops."""
