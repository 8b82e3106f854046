"""The stages of a job: load, call the model's family, record, retry. No arithmetic."""
