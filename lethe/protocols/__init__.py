"""Formats of neighbours that need no service to be read or written."""
