"""A deep model's stored rows, and the sides that an erasure divides them into."""
