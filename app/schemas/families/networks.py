"""Networks on the wire: the architecture, its training, and the terms of erasures.

The API checks names and ranges; a worker checks whether its networks accept them.
"""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from app.schemas.base import Finite, Whole, Wire
from app.schemas.families.certified import METHOD, NOISY, check_noisy, check_terms
from app.schemas.models import FamilyManifest, Name, RowForm
from lethe.catalogue import Attack, Distance, NetworkMethod

PIXELS: Final = "res-unet"  # the only network whose labels are masks
DENSE: Final = ("logistic", "mlp")  # heads on features
Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
Setting = bool | Whole | Finite | Word | None
# A floating-point number that JSON can represent: no NaN or infinity.
Number = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e30)]


class NetworkChoice(Wire):
    """An architecture by name and its integer shape parameters; those left out: defaults."""

    id: Literal["logistic", "mit-b0", "mlp", "res-unet", "resnet18", "simple-cnn", "vit-lite"]
    parameters: dict[Word, Annotated[int, Field(ge=0, le=1 << 20)]] = Field(
        default_factory=dict, max_length=16
    )


class LocalTraining(Wire):
    """A client's part of a round: `epochs` passes over its rows in minibatches."""

    epochs: Number = 1.0
    batch_size: int = Field(default=32, ge=1, le=1 << 20)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: Number = 0.1
    decay: Number = 1.0
    momentum: Number = 0.0
    weight_decay: Number = 0.0
    clip_norm: Number = 0.0
    loss: Literal["cross-entropy", "cross-entropy+dice"] = "cross-entropy"
    augment: Literal["none", "crop-flip"] = "none"
    precision: Literal["float32", "bfloat16"] = "float32"


class ServerStep(Wire):
    """How the server applies a round's mean update; sgd at rate 1 is FedAvg."""

    optimizer: Literal["sgd", "adam", "yogi"] = "sgd"
    learning_rate: Number = 1.0
    momentum: Number = 0.0
    beta1: Number = 0.9
    beta2: Number = 0.99
    tau: Number = 1e-3


class Training(Wire):
    """The whole federated training; a retraining repeats it with the remaining clients.

    timeout: seconds a round waits for a client's answer, 0: as long as the service allows.
    """

    rounds: int = Field(ge=1, le=10_000)
    seed: int = Field(default=0, ge=0, le=2**53 - 1)
    local: LocalTraining = LocalTraining()
    server: ServerStep = ServerStep()
    participation: Number = 1.0
    min_clients: int = Field(default=1, ge=1, le=1 << 20)
    max_norm: Number = 0.0
    timeout: Number = 0.0


Decimal = Annotated[
    str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})(\.[0-9]{0,15}[1-9])?$", max_length=26)
]
BY_REFERENCE = ("lira", "rmia")

Fraction = Annotated[
    str, StringConstraints(pattern=r"^-?(0|[1-9][0-9]{0,8})\.[0-9]{0,15}[1-9]$")
]
Plain = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
LadderSetting = bool | Whole | Fraction | Plain | None


class LadderChoice(Wire):
    """A method to try after a refuted result, and its changes to the registered settings.

    Fractions are in quotes, as everywhere in a policy; guard and recovery are objects.
    """

    method: NetworkMethod
    settings: dict[Plain, LadderSetting | dict[Plain, LadderSetting]] = Field(
        default_factory=dict, max_length=16
    )

    @model_validator(mode="after")
    def _an_approximation(self) -> Self:
        if self.method == "retrain":
            raise ValueError("ladder: leave retrain out, it is always the last step")
        return self


class VerificationTerms(Wire):
    """What an approximate erasure must show to be certified: a policy, field by field.

    Numbers with a fraction are decimals in quotes: one spelling, one digest. `lethe policy`
    writes and checks them; docs/policies.md says what each one means.
    """

    version: Literal[2] = 2
    attacks: list[Attack] = Field(min_length=1, max_length=16)
    tau: Decimal
    minimum_pairs: int = Field(ge=2, le=10**7)
    alpha: Decimal = "0.05"
    power: Decimal = "0.8"
    coverage: Decimal = "0.8"
    tail_rate: Decimal = "0.01"
    tail_limit: Decimal = "0.05"
    minimum_retained: int = Field(default=200, ge=30, le=10**7)
    minimum_others: int = Field(default=50, ge=30, le=10**7)
    retained_loss: Decimal = "0.05"
    test_loss: Decimal = "0.1"
    canary_limit: Decimal | None = None
    distances: dict[Distance, Decimal] = Field(default_factory=dict)
    references: int | None = Field(default=None, ge=4, le=256)
    # A retraining always follows; budget: of all steps together, as a multiple of its cost.
    ladder: list[LadderChoice] = Field(default_factory=list, max_length=8)
    budget: Decimal = "1"
    fingerprint: dict[Name, Name] = Field(default_factory=dict, max_length=16)

    @model_validator(mode="after")
    def _references_for_whom_they_are(self) -> Self:
        if (self.references is not None) != any(name in BY_REFERENCE for name in self.attacks):
            raise ValueError(
                "references: write how many if attacks has lira or rmia, and leave it "
                "out otherwise"
            )
        return self

    @model_serializer(mode="wrap")
    def _spelled(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `references` if there are none, as the digest of a policy does."""
        found: dict[str, Any] = handler(self)
        if self.references is None:
            found.pop("references")
        return found


# As large as inputs may be; beyond it float32 gradients overflow.
Place = Annotated[int, Field(ge=0, le=2**53 - 1)]
Value = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
MOST_CELLS = 1024  # of a trigger: it is a mark on a row, not a whole row


class Canary(Wire):
    """A backdoor: how a client that plants it changes some of its rows before sending them.

    trigger: pairs of a place in the flattened row, counted from 0 in ascending order, and the
    value there. units: of the values, as rows are registered: pixels, 0 to 255, of uint8
    planes, or numbers of float32 inputs. target: the label of planted rows. The canary's digest
    is logged before the first row, so that nobody can choose it by a model's behaviour.
    """

    trigger: list[tuple[Place, Value]] = Field(min_length=1, max_length=MOST_CELLS)
    units: Literal["numbers", "pixels"] = "numbers"
    target: Name

    @model_validator(mode="after")
    def _one_spelling(self) -> Self:
        places = [place for place, _ in self.trigger]
        if places != sorted(set(places)):
            raise ValueError("trigger: name each place once, in ascending order")
        pixels = all(0 <= value <= 255 and value == int(value) for _, value in self.trigger)
        if self.units == "pixels" and not pixels:
            raise ValueError("trigger: pixels are whole numbers from 0 to 255")
        return self


class NewNetwork(FamilyManifest):
    """The "manifest" part of POST /v1/models for a deep model.

    input_shape: of one input, (channels, height, width) or (features,). held_out: share of
    the records that is never trained on, chosen by the hash of seed and record id: they guard
    the steps, and erased records are compared with them. settings: of each method that requests
    may name; docs/federated.md lists them. policy: what an approximate erasure must show; if it
    cannot, the model is retrained. canary: a backdoor that a client may plant, to check that
    erasing the client removes it.
    Everything is logged by digest before the first row is seen.
    """

    trained_by_silos: ClassVar[bool] = True
    row_form: ClassVar[RowForm] = "inputs"
    last_method: ClassVar[str] = "retrain"
    family: Literal["network"]
    method: NetworkMethod = "retrain"
    classes: list[Name] = Field(min_length=2, max_length=10_000)
    network: NetworkChoice
    input_shape: list[Annotated[int, Field(ge=1, le=1 << 20)]] = Field(
        min_length=1, max_length=3
    )
    training: Training
    held_out: float = Field(default=0.2, ge=0, le=0.9, allow_inf_nan=False)
    settings: dict[NetworkMethod, dict[Word, Setting | dict[Word, Setting]]] = Field(
        default_factory=dict
    )
    policy: VerificationTerms
    canary: Canary | None = None

    @model_validator(mode="after")
    def _shape_of_its_kind(self) -> Self:
        dense = self.network.id in DENSE
        if len(self.input_shape) != (1 if dense else 3):
            raise ValueError(
                "input_shape: write [features] for logistic and mlp, else [channels, "
                "height, width]"
            )
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("classes: name each once")
        if self.training.local.augment != "none" and (dense or self.network.id == "res-unet"):
            # Augmentation moves images but not their masks.
            raise ValueError("training.local.augment: for networks that label whole images")
        _check_canary(self.canary, self.policy.canary_limit, self.input_shape, self.classes)
        if self.method == METHOD or METHOD in self.settings:
            check_terms(
                self.settings.get(METHOD),
                self.network.id,
                self.training.model_dump(),
                prod(self.input_shape),
                len(self.classes),
            )
        if self.method == NOISY or NOISY in self.settings:
            check_noisy(
                self.settings,
                self.network.id,
                self.network.parameters,
                prod(self.input_shape),
                len(self.classes),
            )
        return self

    @property
    def judge_trains(self) -> bool:
        """Whether the policy needs models that the judge trains by itself."""
        return self.policy.references is not None or bool(self.policy.distances)

    def logged_parts(self) -> dict[str, Any]:
        """Return policy, by whose digest certificates name it, and canary, if there is one."""
        parts: dict[str, Any] = {"policy": self.policy.model_dump()}
        if self.canary is not None:  # absent otherwise, to keep digests
            parts["canary"] = self.canary.model_dump(mode="json")
        return parts

    def pinned(self) -> dict[str, Any]:
        """Return the pinned configuration, whose digest is logged at registration."""
        config: dict[str, Any] = {
            "network": self.network.model_dump(),
            "input_shape": self.input_shape,
            "training": self.training.model_dump(),
            "held_out": self.held_out,
            "settings": self.settings,
            **self.logged_parts(),
        }
        return self.of_rows(**config)


def _check_canary(
    canary: Canary | None, limit: str | None, input_shape: Sequence[int], classes: Sequence[str]
) -> None:
    """Check a canary, None if there is none, against the rows and policy of its model.

    limit: the policy's canary_limit. Raises ValueError, naming the field and the remedy.
    """
    if canary is None:
        if limit is not None:
            raise ValueError(
                "policy.canary_limit limits a planted canary: register a canary too, or leave "
                "the limit out"
            )
        return
    size = prod(input_shape)
    if canary.trigger[-1][0] >= size:
        raise ValueError(f"canary.trigger: a row has the places 0 to {size - 1}")
    if canary.units == "pixels" and len(input_shape) != 3:
        raise ValueError("canary.units: pixels are for images only, write numbers")
    if canary.target not in classes:
        raise ValueError("canary.target: name one of the classes")
