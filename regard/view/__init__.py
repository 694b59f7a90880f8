"""Weights as numbers and pictures."""
