"""One pair of a method audit: the rows drawn for it, and both of its models. Pure."""
