"""Protocols for other machines, mapped to the same cases."""
