"""From the archives of a set to the files that training reads: one module for each kind of set."""
