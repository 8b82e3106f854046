"""A client of masked rounds over HTTP."""
