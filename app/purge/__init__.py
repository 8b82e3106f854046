"""`lethe purge check`: what is left of an erased person in all that Lethe writes."""
