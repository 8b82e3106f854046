"""Fuzzes what reads bytes of others: a value, or the documented refusal, nothing else.

`mutate` changes valid files, `engine` runs one target in a process with bounds, `targets` names
the parsers, each with its seeds and its refusals.
"""
