"""Certificates: contents, signatures and offline verification."""
