"""Reports of method audits: what they say, what the log says of them, their verification."""
