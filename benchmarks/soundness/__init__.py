"""How often each verifier is fooled: providers who cheat, and honest ones, with intervals.

    python -m benchmarks.soundness [--quick] [--data PATH.npz] [--json FILE] [--out FOLDER]

A trial is one claim put before the verifier as a worker would put it. Accepted means PASS:
FAIL and INCONCLUSIVE both lead to another attempt and never to a certificate.
"""
