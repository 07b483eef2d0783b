"""B3's certification script as a program: steps as data, an exchange that plays them, checks."""
