"""A job while a worker holds it: its lease, its moves between stages, its sealed files."""
