"""Approximate erasures that are certified as such: settings in which nothing escalates."""
