"""Training: one loop for all tasks, exact resuming, several processes. `regard.train` is its entry."""
