"""Flower carries the messages of federated rounds: engine, client, server, trial keys."""
