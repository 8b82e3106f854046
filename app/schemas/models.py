"""Models and their versions on the wire."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.schemas.base import ModelRef, Time, Wire
from lethe.catalogue import Data, RidgeMethod

Text = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Name = Annotated[Text, StringConstraints(min_length=1)]
Sha256Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


Phase = Literal["training", "step", "recovery", "retraining", "repetition", "references"]


class ProgressView(Wire):
    """The current phase of a worker's job and its progress: counts only, no data.

    training: of a registered or contributed model. step and recovery: of an unlearning
    method. retraining: without what is erased. repetition: the verifier trains once more, to
    compare. references: models that the verifier trains for its tests. done: of total `unit`s;
    after an interruption it may drop to the point where the work resumes.
    """

    phase: Phase
    done: int
    total: int
    unit: Literal["rounds", "steps", "models"]


class Extractor(Wire):
    """The frozen feature extractor, pinned by a digest over weights and preprocessing."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    digest: Sha256Hex
    parameters: dict[Text, Text] = Field(default_factory=dict, max_length=32)


class VerificationPolicy(Wire):
    """How the verifier recomputes the statistics; logged at registration.

    full: from all retained rows, O(n·d²). freivalds: a probabilistic check of the claimed
    matrices, O(n·d), wrong with probability below 2**-59; full if that bound cannot be reached.
    alternate: freivalds, and full at every `full_every`-th version.
    """

    statistics: Literal["full", "freivalds", "alternate"] = "freivalds"
    full_every: int = Field(default=10, ge=2, le=1000)


class SketchOptions(Wire):
    """How `ridge-sketched` approximates, and its error bound; logged at registration.

    budget: largest proven distance to the exact head, as a share of the head's norm, before
    the head is computed again from all rows. rank 0: a quarter of the columns, at most 64.
    """

    kind: Literal["eigen", "frequent-directions", "random-projection"] = "eigen"
    rank: int = Field(default=0, ge=0, le=10_000)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    budget: float = Field(default=2.0**-7, gt=0, lt=1, allow_inf_nan=False)


class MaskedOptions(Wire):
    """The least that a masked round must change before its sum is unmasked; logged.

    contributors: members that add or release records. rows: records in total. With fewer, the
    sum would disclose what single members sent. A round without changes is exempt.
    """

    contributors: int = Field(default=3, ge=1, le=100)
    rows: int = Field(default=10, ge=1, le=10**9)


RowForm = Literal["features", "inputs", "table", "vectors"]
Word = Annotated[str, StringConstraints(max_length=200)]


class FamilyManifest(Wire):
    """The members that the manifests of all families have.

    decide: whether requests are executed at once, or after an officer approved them; a key that
    is bound to the data that it erases needs no approval. null: the installation's default.
    cooling_off_seconds: from the approval, or the receipt where none is needed, to the
    execution; until then the request can be withdrawn. trained_by_silos: whether silos, where
    there are any, train the family's models, so that the log has a model's silo keys.
    row_form: how an upload spells its rows. last_method: what the method from the retained
    rows is called.
    """

    trained_by_silos: ClassVar[bool] = False
    row_form: ClassVar[RowForm] = "table"
    last_method: ClassVar[str] = "refit"

    ref: ModelRef
    decide: Literal["review", "at-once"] | None = None
    cooling_off_seconds: int = Field(default=0, ge=0, le=30 * 86_400)

    @property
    def judge_trains(self) -> bool:
        """Whether the judge needs models that it trains by itself."""
        return False

    def logged_parts(self) -> dict[str, Any]:
        """Return parts whose digests are logged by name, beside that of the registration."""
        return {}

    def of_rows(self, **config: Any) -> dict[str, Any]:
        """Return a pinned configuration of a family whose rows are here, without extractor."""
        own: Any = self  # each family has these members
        return {
            "config": {"family": own.family, "data": "rows", **config},
            "classes": own.classes,
            "method": own.method,
            "extractor": {},
        }


class NamedFeatures(FamilyManifest):
    """The names of a model's features, if they have some, in their order.

    A client's table may have its columns in another order, or others besides.
    """

    features: list[Word] = Field(default_factory=list, max_length=10_000)

    def check_features(self, columns: int | None = None) -> None:
        """Raise ValueError unless the names are distinct, and as many as the columns if any."""
        if self.features and columns is not None and len(self.features) != columns:
            raise ValueError("features: name every column, or none")
        if len(set(self.features)) != len(self.features):
            raise ValueError("features: name each once")

    def pinned_features(self) -> dict[str, Any]:
        """Return the names for the pinned configuration, nothing without names."""
        return {"features": self.features} if self.features else {}


class NewModel(NamedFeatures):
    """The "manifest" part of POST /v1/models.

    features: names of the extractor's inputs, if they have some. `exponents` fixes the
    quantiser, Δ_j = 2**exponents[j]; like `penalty` it must come from
    public or calibration data, or retraining without an erased record would choose another.
    """

    row_form: ClassVar[RowForm] = "features"
    family: Literal["ridge"] = "ridge"
    method: RidgeMethod = "ridge-exact"
    classes: list[Name] = Field(min_length=2, max_length=10_000)
    exponents: list[Annotated[int, Field(ge=-60, le=60)]] = Field(
        min_length=1, max_length=10_000
    )
    bits: int = Field(default=16, ge=8, le=16)
    penalty: float = Field(gt=0, allow_inf_nan=False, le=1e30)
    data: Data = "rows"
    extractor: Extractor
    verification: VerificationPolicy = VerificationPolicy()
    sketch: SketchOptions = SketchOptions()
    masked: MaskedOptions = MaskedOptions()

    @model_validator(mode="after")
    def _classes_once(self) -> Self:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("classes: name each once")
        self.check_features()
        return self

    def pinned(self) -> dict[str, Any]:
        """Return the pinned configuration, whose digest is logged at registration."""
        config = {
            **self.pinned_features(),
            "dimension": len(self.exponents),
            "exponents": self.exponents,
            "bits": self.bits,
            "penalty": self.penalty.hex(),  # exactly, whatever reads it
            "data": self.data,
            "verification": self.verification.model_dump(),
            "masked": self.masked.model_dump(),
            "sketch": {**self.sketch.model_dump(), "budget": self.sketch.budget.hex()},
        }
        return {
            "config": config,
            "classes": self.classes,
            "method": self.method,
            "extractor": self.extractor.model_dump(),
        }


class VersionCertificate(Wire):
    """A certificate that names a version: its request, and the statement that was signed."""

    ref: str
    statement: Sha256Hex
    result: str
    log_index: int


METRIC = r"^(accuracy|pixel accuracy|R2|recall@([1-9]|10))$"


class HeldOutView(Wire):
    """A version's metric on the model's held-out rows, logged with the version.

    rows: how many were measured; set: SHA-256 of the file of all. metric with its value, unless
    `withheld` says why there is none. parts: further values by name: of each shard that answers
    apart, where `value` is their mean, or an index's self-retrieval.
    """

    rows: int
    set: Sha256Hex
    metric: Annotated[str, StringConstraints(pattern=METRIC)] | None = None
    value: str | None = None
    parts: dict[str, str] | None = None
    withheld: str | None = None


class VersionView(Wire):
    """A version by its digests; `withdrawn_at` is set once its artifacts are shredded.

    head: of the model's file. statistics: of its inputs: a ridge head's integers, or a
    network's training rows, each salted. held_out: null if the model was registered without
    held-out rows. certificates: of the erasures that made it, only for a single version.
    """

    number: int
    head: Sha256Hex
    statistics: Sha256Hex
    retained_root: str
    retained_count: int
    held_out: HeldOutView | None
    log_index: int
    created_at: Time
    withdrawn_at: Time | None
    artifact: str
    certificates: list[VersionCertificate] | None = None


class ModelView(Wire):
    """A registered model.

    cooling_off: seconds, see `FamilyManifest`, as is decide.

    failure: why it is failed or quarantined; for a single registered model, the last error of
    its first fit.

    held_out: of the current version, and progress: of a training that learns rows, never of an
    erasure; both only for a single model.
    """

    ref: str
    state: Literal["registered", "ready", "failed", "quarantined", "deleted"]
    failure: str | None
    method: str
    classes: list[str]
    extractor: Extractor | None
    config: dict[str, object]
    decide: Literal["review", "at-once"]
    cooling_off: int
    current_version: int | None
    created_at: Time
    held_out: HeldOutView | None = None
    progress: ProgressView | None = None


class DeletionView(Wire):
    """A model that was deleted, and the index of the deletion's log entry."""

    ref: str
    log_index: int


class ManifestView(Wire):
    """The parameters that a client needs to send rows, or statistics of them.

    exponents, bits, penalty, extractor: of a ridge head, null for other families. columns: the
    number of features of a table; their names and categories, if registered.
    """

    ref: str
    family: str
    classes: list[str]
    data: Data
    method: str
    exponents: list[int] | None = None
    bits: int | None = None
    penalty: float | None = None
    extractor: Extractor | None = None
    columns: int | None = None
    features: list[str] = Field(default_factory=list)
    categories: dict[str, list[str]] = Field(default_factory=dict)
    weighted: bool = False


class ContributionView(Wire):
    """Rows a client added, or its statistics of them.

    `saturated` counts codes that the quantiser clipped, if it ran here. `warnings` say what the
    message disclosed.
    """

    id: str
    model: str
    rows: int
    state: str
    failure: str | None
    saturated: int
    log_index: int
    warnings: list[str]
