"""Errors that leave no model to publish, without anyone's fault: retraining follows."""

from workers.methods.network.guard import NoSafeStepError
from workers.methods.network.hf_kcu.conjugate_gradients import BreakdownError
from workers.methods.network.hf_kcu.direction import CurvatureError
from workers.methods.network.recovery import LastingDamageError, OutOfMemoryError
from workers.training.fedavg.errors import DivergedError

WITHOUT_A_MODEL = (
    DivergedError,
    NoSafeStepError,
    LastingDamageError,
    BreakdownError,
    CurvatureError,
    OutOfMemoryError,
)
