"""The explorer: a page on this machine, on top of view/."""
