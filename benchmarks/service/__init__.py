"""The service under load; each figure stands beside a bare insert of the same run."""
