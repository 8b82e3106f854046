"""What is handed out for others to verify: certificates, documents, reports, the log."""
