"""Unlearning for federated deep models: approximate methods, their guard, and retraining."""
