"""Weights as numbers and pictures. What is public is in `regard`, and imported when it is first used."""
