"""The tests. What is set here holds before any of them imports NumPy, and for what they start.

Two test workers on two cores: a second thread for the small matrices of a test only waits for
the first, by spinning. Tests of the number of threads set their own.
"""

import os

from tests.probes import measure

measure()

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
