"""Callbacks: addresses of requesters and agents, each notified of its own request only."""
