"""Silos: each silo's worker answers training rounds and score requests for its clients."""
