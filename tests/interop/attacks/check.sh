#!/bin/sh
# Compares the verifier's attacks and intervals with published implementations, in an
# environment of their own. It skips only where these cannot be installed.
#
#   tests/interop/attacks/check.sh [ENVIRONMENT]     default: build/attacks
set -eu
cd "$(dirname "$0")/../../.."
environment=${1:-build/attacks}
python=$environment/bin/python
here=tests/interop/attacks

install() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }

[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$environment"
# What attacks and comparisons import first, then the attacks, without what else they ask for.
if ! { install -r $here/requirements.txt &&
    install --no-deps --ignore-requires-python -r $here/published.txt; }; then
    echo "skipped: the published implementations cannot be installed here"
    exit 0
fi
PYTHONPATH=. exec "$python" -W ignore $here/compare.py
