"""A client's way through a masked round over HTTP."""
