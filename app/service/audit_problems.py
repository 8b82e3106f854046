"""What an audit of an algorithm can meet."""

from lethe.errors import LetheError


class AuditRefusedError(LetheError):
    """The model or its rows cannot be audited as asked."""

    slug, title, status = "audit-refused", "Audit refused", 422


class AuditRunningError(LetheError):
    """An audit of the same model and method is not finished."""

    slug, title, status = "audit-running", "An audit is running", 409


class NoReportError(LetheError):
    """The audit has no report."""

    slug, title, status = "report-not-issued", "No report", 404


class AuditMissingError(LetheError):
    """The log has a report of the audit that is not stored."""

    slug, title, status = "audit-missing", "The audit's report is missing", 500


class NumbersGoneError(LetheError):
    """An audit's numbers were destroyed with a record that they were of."""

    slug, title, status = "audit-numbers-destroyed", "The numbers are destroyed", 410


class NumbersChangedError(LetheError):
    """An audit's stored numbers are not those that its report was signed of."""

    slug, title, status = "audit-numbers-changed", "The numbers were changed", 500
