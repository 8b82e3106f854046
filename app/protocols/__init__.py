"""Protocols in which other machines call the service, onto the same cases."""
