"""How a method may end without a model to publish, by nobody's fault: retraining follows."""

from workers.fedavg.errors import DivergedError
from workers.unlearning.guard import NoSafeStepError
from workers.unlearning.hf_kcu_cg import BreakdownError
from workers.unlearning.hf_kcu_direction import CurvatureError
from workers.unlearning.memory import OutOfMemoryError
from workers.unlearning.recovery import LastingDamageError

WITHOUT_A_MODEL = (
    DivergedError,
    NoSafeStepError,
    LastingDamageError,
    BreakdownError,
    CurvatureError,
    OutOfMemoryError,
)
