"""Signing in to the console: by a token, or at the organisation's OpenID Connect provider."""
