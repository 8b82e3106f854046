"""The demonstration: the complete workflow on real data, from an empty directory."""
