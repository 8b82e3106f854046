"""Texts of the console, the same names in each language."""
