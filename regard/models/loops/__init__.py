"""Loops of the models, compiled by numba as those of regard/attention/loops are, and imported only when they run."""
