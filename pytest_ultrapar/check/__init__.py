"""`ultrapar check`: which lanes of a pool answer, before anything is paid for."""
