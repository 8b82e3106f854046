"""Rounds over queues: each silo's worker answers for its clients, the database carries it."""
