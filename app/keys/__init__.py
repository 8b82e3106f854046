"""The service's own keys: which are valid, by the log; rotation, revocation, trust root."""
