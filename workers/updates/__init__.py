"""One update of a model: what it learns or removes, the version it makes, its draft."""
