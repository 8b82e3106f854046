"""The end of retention, and `lethe purge check`: the search for traces of erased people."""
