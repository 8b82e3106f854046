"""The manifests of each family of models on the wire."""
