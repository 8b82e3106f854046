"""Pairs of an algorithm audit: a model that learned and forgot, and one that never saw."""
