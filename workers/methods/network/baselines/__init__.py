"""The baselines of the papers, each from its own paper."""
