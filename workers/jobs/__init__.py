"""Load, call, record, retry: the stages of a job. No arithmetic."""
