"""What each family of models costs and is worth, beside the library that people would use.

    python -m benchmarks.families [--quick] [--family NAME]... [--data FILE]... [--label COLUMN]
        [--features COLUMN|GLOB]... [--continue] [--json FILE] [--page FILE]

For each family and data set: accuracy by cross-validation, with the same folds for the
reference; how long a fit takes beside the reference's; how many times faster a deletion is than
a fit, and how many times with the verifier's own fit, which is what a certificate needs. Times
are of processors, of child processes too.

Models of integer sums and recipes are measured by the service's code: of sums, what it computes
for a deletion between reading the sealed rows and writing the new version, digests of all rows
included. A forest is measured as an estimator. Of a vector index accuracy is recall@10
beside exhaustive search by numpy.
"""

import os

# Of the references too, and before their libraries are loaded: threads that spin while they
# wait for each other would count as work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
