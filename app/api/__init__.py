"""HTTP in, calls out: one router a resource. No SQL, no hashing, no commit."""
