"""Shared by all routes: authentication, reading and limiting bodies, problem documents."""
