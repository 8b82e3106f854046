"""Trainable networks, one file each: float32, without random state or pretrained weights."""
