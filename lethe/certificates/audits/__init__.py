"""Method audit reports: format, log entries and verification."""
