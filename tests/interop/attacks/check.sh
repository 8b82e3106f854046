#!/bin/sh
# Compares the verifier's attacks and intervals with published implementations, in an
# environment of their own. It skips only where these cannot be installed.
#
#   tests/interop/attacks/check.sh [ENVIRONMENT]     default: build/attacks
set -eu
cd "$(dirname "$0")/../../.."
environment=${1:-build/attacks}
python=$environment/bin/python

[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$environment"
if ! "$python" -m pip install --quiet --disable-pip-version-check \
    -r tests/interop/attacks/requirements.txt; then
    echo "skipped: the published implementations cannot be installed here"
    exit 0
fi
PYTHONPATH=. exec "$python" -W ignore tests/interop/attacks/compare.py
