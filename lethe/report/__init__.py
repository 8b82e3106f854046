"""Certificates and periods as documents for people: HTML, PDF/A-3, CSV."""
