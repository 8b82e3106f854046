"""Witnesses of logs (C2SP tlog-witness): the protocol, a witness, and its client."""
