"""Federated averaging: one round message for every engine, equal bits for equal seeds."""
