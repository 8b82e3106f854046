"""Errors of backups."""

from lethe.errors import LetheError


class BackupError(LetheError):
    """A backup cannot be written, or does not match its manifest."""

    slug = "backup"
    title = "The backup cannot be used"
    status = 409
