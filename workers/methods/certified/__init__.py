"""Certified removal from a logistic head: a proven distance to the optimum, and noise."""
