"""B3's certification script as a program: the steps as data, an exchange that plays them, checks of what was received."""
