"""What a backup refuses."""

from lethe.errors import LetheError


class BackupError(LetheError):
    """A backup that cannot be written, or is not what its manifest says."""

    slug = "backup"
    title = "The backup cannot be used"
    status = 409
