"""Request keys and RFC 9421 request signatures, independent of the content of requests."""
