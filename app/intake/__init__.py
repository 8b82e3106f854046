"""The intake page: people without tools ask for the erasure of their data, and follow it."""
