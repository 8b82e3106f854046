"""The Data Rights Protocol 1.0: requests of Authorized Agents, in signed envelopes."""
