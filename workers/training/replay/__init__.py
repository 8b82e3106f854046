"""Computations for a judge of networks: a repeated training, a published model's outputs.

It reads published files and retained rows, and shares only the training with the methods.
"""
