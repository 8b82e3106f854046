#!/bin/sh
# Has the unmodified packages aics-witness and aics-tlog witness and verify a running log, in an
# environment of their own, and writes what was run into docs/witnesses.md. It fails if they
# cannot be installed.
#
#   tests/interop/witness/check.sh [ENVIRONMENT]     default: build/witness
set -eu
cd "$(dirname "$0")/../../.."
environment=${1:-build/witness}
[ -x "$environment/bin/python" ] || "${PYTHON:-python3}" -m venv "$environment"
# They declare Python 3.12, and run on 3.11.
if ! "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
    --ignore-requires-python -r tests/interop/witness/requirements.txt; then
    echo "nothing was checked: aics-witness and aics-tlog were not installed; pip's reason is above" >&2
    exit 1
fi
LETHE_TEST_AICS="$environment/bin" LETHE_TEST_WITNESS_RECORD=docs/witnesses.md \
    exec .venv/bin/python -m pytest -n 0 -m slow tests/e2e/test_witnesses.py
