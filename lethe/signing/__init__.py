"""Request keys and RFC 9421 request signatures. Knows nothing of what is being asked."""
