"""Trust in the definitions of instruments, and the complete lists that restore it."""
