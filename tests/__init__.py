"""The tests; a package, so that no other package of this name is taken for it by processes that they start."""
