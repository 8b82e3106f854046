"""The unlearning methods a request may name, by the kind of model they work on."""

# One family: each keeps the exact statistics, so any of them can follow any other.
RIDGE = ("ridge-exact", "ridge-woodbury", "acu", "ridge-sketched")
SKETCHED = "ridge-sketched"  # the only one that takes sketches in place of statistics
