"""The adapter run for real: `flower/check.sh`."""
