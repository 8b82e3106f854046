"""A model's versions and their retained sets, each compared with the log."""
