"""Registrations: pack data for POST /v1/models, beside the data and without the service."""
