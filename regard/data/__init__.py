"""Data: what the tour and the examples look at, and tables from files."""
