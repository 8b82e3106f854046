"""Errors of backups."""

from lethe.errors import LetheError


class BackupError(LetheError):
    """A backup cannot be written, or does not match its manifest."""

    slug, title, status = "backup", "The backup cannot be used", 409
