"""Methods that unlearn with what the service does not keep, for comparison."""
