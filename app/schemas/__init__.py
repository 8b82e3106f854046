"""Wire types: frozen pydantic models of what is sent and received, never a table."""
