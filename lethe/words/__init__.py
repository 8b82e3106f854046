"""Texts for people about certificates and reports, in English, German and French."""
