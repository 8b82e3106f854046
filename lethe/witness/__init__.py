"""Witnesses of logs (C2SP tlog-witness): what is sent, a witness, and how one is asked."""
