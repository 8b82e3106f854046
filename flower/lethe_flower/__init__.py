"""Flower carries the round messages of `workers.fedavg`: engine, client, server, trial keys."""
