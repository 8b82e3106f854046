"""A job's model: its versions, retained sets, held-out rows, and what the log says of it."""
