"""The service's own keys: validity by the log, rotation, revocation, trust root."""
