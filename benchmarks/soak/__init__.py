"""A service at work for hours, killed again and again: what is lost, and what grows."""
