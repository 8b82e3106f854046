"""Callbacks: addresses that requesters and agents name, each told of its own request alone."""
