"""Certificates: what they say, how they are sealed, how a stranger checks them offline."""
