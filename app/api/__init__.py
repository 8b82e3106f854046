"""The HTTP API: one router for each resource. No SQL, no hashing, no commit."""
