"""An end-to-end check of the adapter: `flower/check.sh`."""
