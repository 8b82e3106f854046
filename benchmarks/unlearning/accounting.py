"""What unlearning costs by the formulas of PUF's appendix B and Table VIII.

Estimates in the paper's own units, for comparison with its tables; what a run really sent and
computed is in its `Work`. The paper's F counts a forward pass only, and its Table VIII the
weights without any framing. Its tables have one slip: PGA's storage there is 11 P B for 10
clients (4.94e8), and C P B by its own formula.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MethodCost:
    """Bytes exchanged, floating-point operations, bytes kept for unlearning."""

    communication: float
    computation: float
    storage: float

    def __add__(self, other: "MethodCost") -> "MethodCost":
        """Return both phases together: what is kept is kept once, the larger of the two."""
        return MethodCost(
            self.communication + other.communication,
            self.computation + other.computation,
            max(self.storage, other.storage),
        )


@dataclass(frozen=True, slots=True)
class CostSetting:
    """Table VII: P, P_c, C, C_u, F, N, E and B. Rounds and epochs may be means over runs."""

    parameters: int  # P
    clients: int  # C, those that leave included
    unlearning: int  # C_u
    flops: float  # F, for each sample
    samples: float  # N, of each client
    epochs: float = 1.0  # E
    classifier: int = 0  # P_c, FedAU only
    width: int = 4  # B, bytes of a parameter

    @property
    def remaining(self) -> int:
        """C_r."""
        return self.clients - self.unlearning

    @property
    def model(self) -> float:
        """P B: the bytes of one model, which every method keeps."""
        return float(self.parameters * self.width)

    def rounds(self, participations: float, epochs: float | None = None) -> MethodCost:
        """Return the cost of so many times one client taking part in a round."""
        passes = self.epochs if epochs is None else epochs
        computation = self.flops * self.samples * passes * participations
        return MethodCost(2 * self.model * participations, computation, self.model)


def recovery(setting: CostSetting, rounds: float) -> MethodCost:
    """Return the cost of ordinary rounds among the remaining clients; full retraining too."""
    return setting.rounds(setting.remaining * rounds)


def fed_eraser(setting: CostSetting, retained: float, calibration_epochs: float) -> MethodCost:
    """Return the cost of calibrating `retained` rounds; all updates of them were kept."""
    cost = setting.rounds(setting.remaining * retained, calibration_epochs)
    kept = setting.clients * retained * setting.model
    return MethodCost(cost.communication, cost.computation, kept)


def pga(setting: CostSetting, ascent_epochs: float) -> MethodCost:
    """Return the cost of gradient ascent at the clients that leave; one update kept each."""
    ascent = setting.rounds(setting.unlearning, ascent_epochs)
    return MethodCost(2 * setting.model, ascent.computation, setting.clients * setting.model)


def fed_au(setting: CostSetting) -> MethodCost:
    """Return the cost of merging an auxiliary classifier that was trained all along."""
    return MethodCost(2.0 * setting.classifier * setting.width, 0.0, setting.model)


def mode(setting: CostSetting, degradation: float, guidance: float) -> MethodCost:
    """Return the cost of degradation rounds and memory-guidance rounds."""
    cost = setting.rounds(setting.remaining * degradation + setting.clients * guidance)
    return MethodCost(cost.communication, cost.computation, 2 * setting.model)


def puf_special(setting: CostSetting) -> MethodCost:
    """Return the cost of one round of the clients that leave."""
    return setting.rounds(setting.unlearning)


def puf_regular(setting: CostSetting) -> MethodCost:
    """Return the cost of one round of all clients."""
    return setting.rounds(setting.clients)


def no_t(setting: CostSetting) -> MethodCost:
    """Return the cost of negating a layer: nothing worth counting."""
    return MethodCost(0.0, 0.0, setting.model)
