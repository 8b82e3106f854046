"""Attacks on a running installation: real processes, real servers, `make red-team`."""
