"""Verifiable documents for others: certificates, receipts, reports, the log."""
