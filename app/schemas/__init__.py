"""Wire types: frozen pydantic models of requests and answers, never of tables."""
