"""Injects faults into an installation and counts what was lost, doubled, stuck or damaged.

`layer` sits between the product and the system, in the process that a fault is planted in.
`workloads` says what clients and operators do, and `judgement` what must hold afterwards.
`case` runs one fault in a process that it may kill and recovers in fresh ones, `schedule`
chooses the faults, and `processes` runs some of them in real API processes and workers.
"""
