"""What `make witness-check` needs."""
