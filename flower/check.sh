#!/bin/sh
# Installs flwr and lethe into an environment of their own and runs the adapter for real: one
# SuperLink and three SuperNodes with TLS and node keys on localhost (flower_check/check.py).
# It skips only where flwr cannot be installed; whatever else fails is a failure.
#
#   flower/check.sh [ENVIRONMENT]     default: build/flower
set -eu
cd "$(dirname "$0")/.."
environment=${1:-build/flower}
python=$environment/bin/python

[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$environment"
flwr=$(grep '^flwr' flower/requirements.txt)
if ! "$python" -m pip install --quiet --disable-pip-version-check "$flwr"; then
    echo "skipped: flwr cannot be installed here"
    exit 0
fi
"$python" -m pip install --quiet --disable-pip-version-check -r flower/requirements.txt . pytest
export PYTHONPATH=.:flower
# No settings and no conftest.py: those are the main environment's.
"$python" -m pytest -q -c /dev/null --rootdir . --noconftest -p no:cacheprovider \
    tests/flower/test_grid_exchange.py
exec "$python" -m flower_check.check
