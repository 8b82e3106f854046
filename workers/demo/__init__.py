"""The demonstration: the main job on real data, from an empty directory."""
