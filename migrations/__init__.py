"""The schema's history. `HEAD` is the revision that this version of the code needs."""

HEAD = "0015"
