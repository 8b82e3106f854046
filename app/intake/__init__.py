"""The intake page: people request the erasure of their data in a browser, and follow it."""
