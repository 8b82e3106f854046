"""TensorFlow Privacy's and PrivacyGuard's attacks, as PyPI has them, and nothing of ours.

Both are installed without what they ask for (published.txt). TensorFlow Privacy's own
`__init__` imports TensorFlow, which the attacks do not use: it is not run.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec

_ATTACKS = "tensorflow_privacy.privacy.privacy_tests.membership_inference_attack"
_spec = find_spec("tensorflow_privacy")
assert _spec is not None
sys.modules.setdefault("tensorflow_privacy", module_from_spec(_spec))

advanced_mia = import_module(f"{_ATTACKS}.advanced_mia")
data_structures = import_module(f"{_ATTACKS}.data_structures")
threshold_attacks = import_module(f"{_ATTACKS}.membership_inference_attack")

aggregation = import_module("privacy_guard.analysis.mia.aggregate_analysis_input")
privacy_guard_rmia = import_module("privacy_guard.attacks.rmia_attack")
