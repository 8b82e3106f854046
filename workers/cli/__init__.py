"""Subcommands of `lethe` that need the mathematics."""
