"""Third-party formats that can be read or written without a service."""
