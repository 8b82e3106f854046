"""The methods that the papers compare with, each from its own paper."""
