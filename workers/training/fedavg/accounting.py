"""What a run took, for its certificate."""

from workers.training.fedavg.base import Work


def cost_notes(work: Work) -> dict[str, str]:
    """Return what a certificate says of a run's cost: counts exactly, seconds to a tenth."""
    return {
        "cost.rounds": str(work.rounds),
        "cost.steps": str(work.steps),
        "cost.flops": str(work.flops),
        "cost.bytes-down": str(work.bytes_down),
        "cost.bytes-up": str(work.bytes_up),
        "cost.seconds": f"{work.seconds:.1f}",
    }
