"""The shared names of Lethe: methods, guarantees, attacks, checks, log events.

API and command-line choices, certificates, the log and docs/catalogue.md derive from here.
Implementations register under these names (`workers.methods`, `workers.judge`), and a test
finds names without one. The service refuses to write an event that is not listed here, or a
field that its event does not have. This is one long file on purpose: adding a name changes only
this file and that of the implementation.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from lethe.records import dataclass

# --- unlearning methods, by the kind of model they work on ----------------------------------
ModelKind = Literal[
    "ridge", "network", "recipe", "forest", "script", "shards", "sums", "vectors"
]


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """An unlearning method that a request may name.

    model: the kind of model it works on. retrains: whether it trains on the retained rows anew
    in any case, so that its seconds are those of a retraining. sketches: whether clients may
    send it sketches of their statistics, which no other method can use.
    """

    name: str
    model: ModelKind
    meaning: str
    retrains: bool = False
    sketches: bool = False


# Each ridge method keeps the exact statistics, so any of them can follow any other. A network
# method may lack an input, such as answers of the leaving clients: the worker detects that.
_METHODS = (
    MethodSpec("ridge-exact", "ridge", "subtract, factorise, round correctly"),
    MethodSpec("ridge-woodbury", "ridge", "update the inverse by the Woodbury identity"),
    MethodSpec("acu", "ridge", "update knowledge tracking matrix and head from the rows"),
    MethodSpec(
        "ridge-sketched", "ridge", "subtract sketches, with a proven bound", sketches=True
    ),
    MethodSpec(
        "puf-special", "network", "apply one more update of the leaving clients backwards"
    ),
    MethodSpec("puf-regular", "network", "the same, within a round of all clients"),
    MethodSpec("hf-kcu", "network", "one curvature step by conjugate gradients"),
    MethodSpec("retrain", "network", "repeat the training without the data", retrains=True),
    MethodSpec("certified-newton", "network", "Newton steps and noise; logistic heads"),
    MethodSpec("noisy-finetuning", "network", "clipped steps with noise; small heads"),
    MethodSpec("fed-au", "network", "an auxiliary module learns the rows to be forgotten"),
    MethodSpec("finetune", "network", "train on the retained rows"),
    MethodSpec("l1-sparsity", "network", "train on the retained rows under an L1 penalty"),
    MethodSpec("mode", "network", "degrade the model with momentum, guided by the erased rows"),
    MethodSpec("naive-ga", "network", "gradient ascent at the leaving clients"),
    MethodSpec("natural", "network", "recovery rounds without a step: the control"),
    MethodSpec("neg-grad", "network", "gradient ascent on the pooled erased rows"),
    MethodSpec(
        "neg-grad-plus", "network", "ascend on the erased, descend on the retained rows"
    ),
    MethodSpec("not", "network", "negate the weights of a layer, then recover"),
    MethodSpec("random-label", "network", "train the erased rows with random labels"),
    MethodSpec("scrub", "network", "distillation away from, then towards the old model"),
    MethodSpec("wood-fisher", "network", "one step with the WoodFisher inverse curvature"),
    MethodSpec("refit", "recipe", "fit the recipe again on the retained rows", retrains=True),
    MethodSpec("forest-exact", "forest", "update counts; rebuild where another split is best"),
    MethodSpec(
        "refit-shards", "shards", "refit the shards that held the records", retrains=True
    ),
    MethodSpec("sums-exact", "sums", "subtract the rows from integer sums; solve again"),
    MethodSpec(
        "rerun",
        "script",
        "run the operator's program again on the retained rows",
        retrains=True,
    ),
    MethodSpec("vectors-drop", "vectors", "drop the rows; relink the graph of the others"),
)
METHODS: Final[Mapping[str, MethodSpec]] = MappingProxyType({one.name: one for one in _METHODS})
RIDGE: Final = tuple(one.name for one in _METHODS if one.model == "ridge")
NETWORK: Final = tuple(one.name for one in _METHODS if one.model == "network")
SKETCHED: Final = frozenset(one.name for one in _METHODS if one.sketches)
# These are certified by tests on rows, and a policy requires enough of them.
TESTED: Final = frozenset(NETWORK) - {"certified-newton", "noisy-finetuning", "retrain"}
RECIPE: Final = tuple(one.name for one in _METHODS if one.model == "recipe")
FOREST: Final = tuple(one.name for one in _METHODS if one.model == "forest")
SHARDS: Final = tuple(one.name for one in _METHODS if one.model == "shards")
SUMS: Final = tuple(one.name for one in _METHODS if one.model == "sums")
SCRIPT: Final = tuple(one.name for one in _METHODS if one.model == "script")
VECTORS: Final = tuple(one.name for one in _METHODS if one.model == "vectors")
if TYPE_CHECKING:
    RidgeMethod = str
    NetworkMethod = str
    RecipeMethod = str
    ForestMethod = str
    ScriptMethod = str
    ShardsMethod = str
    SumsMethod = str
    VectorsMethod = str
else:  # accepted by wire types, listed in OpenAPI
    RidgeMethod, NetworkMethod = Literal[RIDGE], Literal[NETWORK]
    RecipeMethod, ForestMethod = Literal[RECIPE], Literal[FOREST]
    ScriptMethod = Literal[SCRIPT]
    ShardsMethod, SumsMethod = Literal[SHARDS], Literal[SUMS]
    VectorsMethod = Literal[VECTORS]
Method = (
    RidgeMethod
    | NetworkMethod
    | RecipeMethod
    | ForestMethod
    | ScriptMethod
    | ShardsMethod
    | SumsMethod
    | VectorsMethod
)


def family_of(config: Mapping[str, Any]) -> str:
    """Return the family of a model's configuration; one without a name is ridge."""
    return str(config.get("family", "ridge"))


# --- where the rows of a model are ----------------------------------------------------------
@dataclass(frozen=True, slots=True)
class DataSpec:
    """Where the rows of a model are, and what of them the service stores, sealed.

    rows_here: the rows themselves. messages_here: each client's own integer sums over its rows.
    in_rounds: neither; clients send masked sums in rounds, and an erasure waits for one.
    """

    name: str
    rows_here: bool = False
    messages_here: bool = False
    in_rounds: bool = False

    @property
    def rebuildable(self) -> bool:
        """Whether a job can rebuild the model from what is stored."""
        return self.rows_here or self.messages_here


_DATA = (
    DataSpec("rows", rows_here=True),
    DataSpec("statistics", messages_here=True),
    DataSpec("masked", in_rounds=True),
)
DATA: Final[Mapping[str, DataSpec]] = MappingProxyType({one.name: one for one in _DATA})
if TYPE_CHECKING:
    Data = str
else:
    Data = Literal[tuple(DATA)]


def data_of(config: Mapping[str, Any]) -> DataSpec:
    """Return where the rows of a configuration, or of a certificate's parameters, are.

    Of a name that only a newer version knows, nothing is here.
    """
    name = config.get("data", "rows")
    return DATA.get(name) or DataSpec(name)


# --- what a recipe may name, by import path -------------------------------------------------
# Left out: what keeps training rows in the fitted model (nearest neighbours, SVC, Gaussian
# processes, Nystroem, quantile transformers), what takes functions or other estimators, what
# searches over parameters.
CLASSIFIERS: Final[tuple[str, ...]] = (
    "lightgbm.LGBMClassifier",
    "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
    "sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis",
    "sklearn.ensemble.ExtraTreesClassifier",
    "sklearn.ensemble.GradientBoostingClassifier",
    "sklearn.ensemble.HistGradientBoostingClassifier",
    "sklearn.ensemble.RandomForestClassifier",
    "sklearn.linear_model.LogisticRegression",
    "sklearn.linear_model.RidgeClassifier",
    "sklearn.linear_model.SGDClassifier",
    "sklearn.naive_bayes.BernoulliNB",
    "sklearn.naive_bayes.ComplementNB",
    "sklearn.naive_bayes.GaussianNB",
    "sklearn.naive_bayes.MultinomialNB",
    "sklearn.svm.LinearSVC",
    "sklearn.tree.DecisionTreeClassifier",
    "sklearn.tree.ExtraTreeClassifier",
    "xgboost.XGBClassifier",
)
REGRESSORS: Final[tuple[str, ...]] = (
    "lightgbm.LGBMRegressor",
    "sklearn.ensemble.ExtraTreesRegressor",
    "sklearn.ensemble.GradientBoostingRegressor",
    "sklearn.ensemble.HistGradientBoostingRegressor",
    "sklearn.ensemble.RandomForestRegressor",
    "sklearn.linear_model.BayesianRidge",
    "sklearn.linear_model.ElasticNet",
    "sklearn.linear_model.HuberRegressor",
    "sklearn.linear_model.Lasso",
    "sklearn.linear_model.LinearRegression",
    "sklearn.linear_model.PoissonRegressor",
    "sklearn.linear_model.Ridge",
    "sklearn.linear_model.SGDRegressor",
    "sklearn.svm.LinearSVR",
    "sklearn.tree.DecisionTreeRegressor",
    "sklearn.tree.ExtraTreeRegressor",
    "xgboost.XGBRegressor",
)
TRANSFORMERS: Final[tuple[str, ...]] = (
    "sklearn.decomposition.PCA",
    "sklearn.decomposition.TruncatedSVD",
    "sklearn.feature_selection.VarianceThreshold",
    "sklearn.impute.SimpleImputer",
    "sklearn.kernel_approximation.RBFSampler",
    "sklearn.preprocessing.Binarizer",
    "sklearn.preprocessing.KBinsDiscretizer",
    "sklearn.preprocessing.MaxAbsScaler",
    "sklearn.preprocessing.MinMaxScaler",
    "sklearn.preprocessing.Normalizer",
    "sklearn.preprocessing.PolynomialFeatures",
    "sklearn.preprocessing.PowerTransformer",
    "sklearn.preprocessing.RobustScaler",
    "sklearn.preprocessing.StandardScaler",
    "sklearn.random_projection.GaussianRandomProjection",
)
if TYPE_CHECKING:
    RecipeClass = str
else:
    RecipeClass = Literal[(*CLASSIFIERS, *REGRESSORS, *TRANSFORMERS)]

# --- what a certificate can promise --------------------------------------------------------
GuaranteeClass = Literal[
    "exact",
    "exact-retrained",
    "retrained",
    "numerically-exact",
    "certified-approximate",
    "empirical-approximate",
    "none",
]

# The bounds of guarantees by name, with units.
BOUNDS: Final[Mapping[str, str]] = {
    "difference": "largest relative difference of a tensor between two runs of the program",
    "head": "largest distance of the head from the solution (Frobenius norm)",
    "distance": "largest distance of the weights from the optimum (L2 norm)",
    "epsilon": "epsilon of the noise, for all releases together",
    "delta": "delta of the noise, for all releases together",
}

# --- what the judge measures ---------------------------------------------------------------
Attack = Literal["lira", "rmia", "shokri", "song-confidence", "song-modified-entropy", "yeom"]
ATTACKS: Final[tuple[str, ...]] = get_args(Attack)
Distance = Literal[
    "disagreement",
    "forget-accuracy-gap",
    "logit-mse",
    "output-kl",
    "retained-accuracy-gap",
    "test-accuracy-gap",
]
DISTANCES: Final[tuple[str, ...]] = get_args(Distance)
# A verifier's version changes whenever the same claim may get another verdict, as when a
# check is added. Certificates carry it, and a recheck of another version compares nothing.
VERIFIERS: Final[Mapping[str, str]] = {
    "certified-approximate": "4",
    "empirical-approximate": "4",
    "exact": "6",
    "exact-retrained": "2",
    "numerically-exact": "4",
    "retrained": "2",
}
Compared = Literal["model before", "model after", "rows before", "rows after"]


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """A check of a verifier, or those whose names a `*` stands for.

    quantity: what a certificate's `value` is, with its unit. threshold: the condition on the
    value for passing, into which the judge inserts registered numbers; None if the check is
    only reported. wording: the property that is checked. needs: what an outsider who repeats
    the check lacks. names: the object whose digest is a passed check's value, if a recheck
    compares it. rechecked: the files from which `lethe certificate recheck` repeats it without
    scores.
    """

    name: str
    quantity: str
    threshold: str | None
    wording: str
    needs: str = "needs what stays with the service"
    names: Compared | None = None
    rechecked: str | None = None

    @property
    def rests_on_service(self) -> bool:
        """Whether it cannot be repeated outside the service, even with all files."""
        return self.needs.startswith("rests on the service")

    def of(self, measured: str) -> "CheckSpec":
        """Return the check with `*` replaced by an attack or distance."""
        return replace(self, name=self.name.replace("*", measured))


_DIGEST = "equal to the published digest"
_SUMS = "the model's sums must be those of the retained records"
_SENT = "the model's sums must be those of the clients' remaining messages"
_HEAD = "the published weights must be the solution for these sums, within the stated bound"
_CONTROL = "the attack must find the erased rows before the erasure, or it proves nothing after"
_CHANCE = "the attack must be about as good as guessing at separating erased from unseen rows"
_DISTANCE = "the model must answer about like one trained without the erased rows"
_REPORTED = "reported with a 95 % interval; nothing depends on it"
_ROWS = "needs the rows, which stay with the service"
_STATISTICS = "needs the statistics, which are sealed with the model"
_AGAIN = "needs the retained rows to train on again"
_GONE = "rests on the service: "
_CHECKS = (
    CheckSpec(
        "claim",
        "the published claim, as far as the verifier could read it",
        "a claim of this guarantee class, with its files",
        "the published claim must be readable and of the judged class",
    ),
    CheckSpec(
        "log",
        "log entries of the versions before and after",
        "head, statistics and retained set of both versions, at their own entries",
        "the judged versions must be those in the log",
    ),
    CheckSpec(
        "statistics-recomputed",
        "statistics summed again from the retained rows (SHA-256)",
        _DIGEST,
        _SUMS,
        _ROWS,
        "rows after",
    ),
    CheckSpec(
        "statistics-freivalds",
        "published statistics, tested against the retained rows at random (SHA-256)",
        f"{_DIGEST}; the random identity holds modulo two primes",
        _SUMS,
        _ROWS,
        "rows after",
    ),
    CheckSpec(
        "statistics-resummed",
        "sum of the clients' messages (SHA-256)",
        _DIGEST,
        _SENT,
        "needs the messages, which stay with the service",
        "rows after",
    ),
    CheckSpec(
        "masked-rounds-summed",
        "statistics before, and the unmasked sum of the round (SHA-256)",
        _DIGEST,
        _SENT,
        "needs the round's messages, which were destroyed",
        "rows after",
    ),
    CheckSpec(
        "head-correctly-rounded",
        "proven distance of the unrounded head from the solution (Frobenius norm)",
        "at most the claimed bound; every entry the float32 nearest to the solution",
        "the published weights must be the solution, to the last digit",
        _STATISTICS,
    ),
    CheckSpec(
        "head-bound",
        "proven distance of the head from the solution (Frobenius norm)",
        "at most the claimed bound and tolerance * norm of the head",
        _HEAD,
        _STATISTICS,
    ),
    CheckSpec(
        "head-certified",
        "proven distance of the head from the solution (Frobenius norm)",
        "at most the claimed bound and budget * norm of the head",
        _HEAD,
        _STATISTICS,
    ),
    CheckSpec(
        "model-file",
        "stored model file (SHA-256)",
        _DIGEST,
        "the stored model must be the published one",
        "see the line `model file`",
        "model after",
    ),
    CheckSpec(
        "policy",
        "alpha spent by this request, attacks, tau, seed",
        "the policy of the registered digest; a seed of at least 16 bytes",
        "the tests must be those fixed at registration",
    ),
    CheckSpec(
        "data",
        "stored training rows (SHA-256)",
        "equal to the digest that the training claims",
        "the stored rows must be those that the published version names",
        _ROWS,
        "rows after",
    ),
    CheckSpec(
        "retained-set",
        "training records before, erased, after",
        "before - erased = after; the published counts and Merkle roots; a row for each record",
        "exactly the erased records must have left the list of records",
        "needs the list of all commitments; the removal proof is checked above",
    ),
    CheckSpec(
        "purge",
        "destroyed items still readable, erased rows still stored",
        "0 readable, 0 erased rows stored",
        "no container of the erased records may still be readable",
        f"{_GONE}nobody else can try to read the destroyed items",
    ),
    CheckSpec(
        "bytes-probe",
        "erased rows whose vector, 16 bytes of it, or id are in the bytes of the new files",
        "0 found, in the model's file, its state and every export",
        "the new files must hold the bytes of no erased vector, of no part of it and of no id",
        "needs the erased rows, which were destroyed",
        rechecked="evidence and model file: the ids, not the vectors",
    ),
    CheckSpec(
        "posterior",
        "divergence of the published head's posterior from that of the recomputed sums "
        "(KL, nats), at most",
        "0 nats between the sums; covariance after at least the covariance before",
        "the sums must carry the information of the retained rows, and no more than before; "
        "how far the head may be from them, its own check decides",
        _STATISTICS,
    ),
    CheckSpec(
        "start",
        "initial weights of the registered seed (SHA-256)",
        "equal to the digest that the training claims",
        "the training must have started from the registered initial weights",
        _AGAIN,
    ),
    CheckSpec(
        "re-execution",
        "repeated rounds, or fit, and the resulting model file (SHA-256)",
        f"all of it; {_DIGEST}",
        "the repeated training must give the same file, bit for bit; of sums and forests the "
        "same sealed state, too",
        _AGAIN,
        "model after",
    ),
    CheckSpec(
        "rerun-difference",
        "largest relative difference of a tensor between the published model and the "
        "verifier's run, max|a - b| / max(|a|, |b|)",
        "at most the registered tolerance",
        "the verifier's own run must give the published tensors, within the tolerance",
        _AGAIN,
    ),
    CheckSpec(
        "gradient-bound",
        "proven distance of the weights from the optimum (L2 norm)",
        "at most the claimed bound and tolerance * norm of the weights",
        "the distance to the optimum of the retained rows must be below the limit",
    ),
    CheckSpec(
        "noise",
        "weights without the committed noise",
        "0 weights",
        "the registered noise must be in the model",
    ),
    CheckSpec(
        "budget",
        "releases since the last training, and whether the noise hides them",
        "all releases hidden at the registered (epsilon, delta)",
        "the number of versions must not exceed the noise budget",
    ),
    CheckSpec(
        "registration",
        "the model's registration (SHA-256)",
        "equal to the logged digest",
        "the registration must be the one in the log",
        "needs the registration (--registration)",
        rechecked="the registration, as `GET /v1/models/{ref}` answers it",
    ),
    CheckSpec(
        "samples",
        "erased records with scores, pairs tested, power of the tests",
        "the policy's minimum sizes and power",
        "there must be enough erased rows, each matched with an unseen row, to detect a trace "
        "of the stated size",
    ),
    CheckSpec(
        "attacks",
        "attacks on the published model",
        "the policy's attacks, on samples that passed",
        "the attacks must have been run",
    ),
    CheckSpec("control:*", "AUC of the attack before the erasure", "above 1/2 + tau", _CONTROL),
    CheckSpec(
        "control:canary",
        "success rate of the planted trigger before the erasure",
        "above the policy's limit",
        "the planted trigger must have worked before the erasure",
    ),
    CheckSpec(
        "control:canary-trigger",
        "success rate that the trigger adds before the erasure",
        "above 0",
        "the planted trigger must have worked before the erasure",
    ),
    CheckSpec(
        "*:accuracy",
        "share of the tested rows that the attack classifies correctly",
        "between 1/2 - tau and 1/2 + tau",
        _CHANCE,
    ),
    CheckSpec(
        "*:auc",
        "AUC of the attack on erased against unseen rows",
        "between 1/2 - tau and 1/2 + tau",
        _CHANCE,
    ),
    CheckSpec(
        "*:tail",
        "share of the erased rows flagged at a low false positive rate; TPR at FPR: at the "
        "threshold that flags this share of these non-members",
        "below the policy's limit",
        "hardly any erased row may stand out where the attack is most confident",
    ),
    CheckSpec(
        "*:advantage",
        "true minus false positive rate at the threshold fixed beforehand",
        None,
        _REPORTED,
    ),
    CheckSpec(
        "*:best-advantage",
        "largest true minus false positive rate over all thresholds, chosen after the fact",
        None,
        _REPORTED,
    ),
    CheckSpec(
        "*:roc",
        "ROC curve of the attack after and before the erasure: how many unseen and erased rows "
        "lie above each threshold",
        None,
        _REPORTED,
    ),
    CheckSpec(
        "distances",
        "distances of the model from a retrained one",
        None,
        "reported if a model was retrained; nothing depends on it",
    ),
    CheckSpec(
        "distance:disagreement",
        "share of unseen rows for which the retrained model answers differently",
        "below the policy's limit",
        _DISTANCE,
    ),
    CheckSpec(
        "distance:forget-accuracy-gap",
        "difference in accuracy on erased rows from the retrained model",
        "below the policy's limit",
        _DISTANCE,
    ),
    CheckSpec(
        "distance:logit-mse",
        "mean squared distance of the logits from the retrained model's, on unseen rows",
        "below the policy's limit",
        _DISTANCE,
    ),
    CheckSpec(
        "distance:output-kl",
        "mean KL divergence from the retrained model's answers, on unseen rows (nats)",
        "below the policy's limit",
        _DISTANCE,
    ),
    CheckSpec(
        "distance:retained-accuracy-gap",
        "difference in accuracy on retained rows from the retrained model",
        "below the policy's limit",
        _DISTANCE,
    ),
    CheckSpec(
        "distance:test-accuracy-gap",
        "difference in accuracy on unseen rows from the retrained model",
        "below the policy's limit",
        _DISTANCE,
    ),
    CheckSpec(
        "distance:*-accuracy",
        "accuracy of the published model minus that of the retrained one, on the same rows",
        None,
        _REPORTED,
    ),
    CheckSpec(
        "distance:parameter-gap",
        "distance of the weights from the retrained model's (L2 norm)",
        None,
        "reported only: units can be permuted, so it shows nothing",
        f"{_GONE}the retrained model was destroyed",
    ),
    CheckSpec(
        "canary",
        "success rate of the planted trigger after the erasure",
        "below the policy's limit",
        "the planted trigger must no longer work",
    ),
    CheckSpec(
        "retained-accuracy",
        "accuracy lost on retained rows",
        "below the policy's limit",
        "the model must not have become much worse on retained rows",
    ),
    CheckSpec(
        "test-accuracy",
        "accuracy lost on unseen rows",
        "below the policy's limit",
        "the model must not have become much worse on unseen rows",
    ),
    CheckSpec("forget-accuracy", "accuracy on the erased rows", None, _REPORTED),
    CheckSpec(
        "rows-before",
        "stored and removed rows of the version before (SHA-256)",
        _DIGEST,
        "the tested rows must be those of the version before",
        _ROWS,
        "rows before",
    ),
    CheckSpec(
        "untouched-shards",
        "shards that are not named as fitted again; their numbers, files and rows (SHA-256)",
        "file and rows of each equal those of the version before",
        "only the named shards may differ from the version before",
        "needs the manifests of both versions, which are in the evidence",
        rechecked="evidence; the shards' own files from the model file",
    ),
    CheckSpec(
        "rows-after",
        "stored rows of the published version (SHA-256)",
        _DIGEST,
        "the tested rows must be those of the published version",
        _ROWS,
        "rows after",
    ),
    CheckSpec(
        "model-before",
        "model file of the version before (SHA-256)",
        _DIGEST,
        "the reference model must be the version before",
        f"{_GONE}it hashed the file before, which was destroyed",
        "model before",
    ),
    CheckSpec(
        "trainings",
        "models trained by the verifier, and their cost (operations)",
        "as many as the policy's attacks and distances need",
        "all models required by the tests must have been trained",
        f"{_GONE}what the verifier trained was destroyed",
    ),
    CheckSpec(
        "silos-answered",
        "silos whose answers count, and the signing keys",
        "all silos, in time, in full, signed with the registered keys",
        "every silo must have answered, signed with its own key",
        f"{_GONE}the signed answers were destroyed",
    ),
)
CHECKS: Final[Mapping[str, CheckSpec]] = MappingProxyType({one.name: one for one in _CHECKS})

_FITTED = ("model-file", "data", "retained-set", "purge", "registration")
_REFITTED = (*_FITTED, "re-execution", "rows-before")
# The checks of each family of tables, in the order of its certificates.
CHECKS_OF: Final[Mapping[ModelKind, tuple[str, ...]]] = MappingProxyType(
    {
        "sums": _REFITTED,
        "forest": _REFITTED,
        "recipe": _REFITTED,
        "shards": (*_REFITTED, "untouched-shards"),
        "script": (*_FITTED, "re-execution", "rerun-difference", "rows-before"),
        "vectors": (*_REFITTED, "bytes-probe"),
    }
)


def check_of(name: str) -> CheckSpec | None:
    """Return the check with a name from a certificate, None if it is unknown."""
    if name in CHECKS:
        return CHECKS[name]
    begins, _, measured = name.partition(":")
    spec = CHECKS.get(f"*:{measured}") if begins in ATTACKS else None
    if begins == "control" and measured in ATTACKS:
        spec = CHECKS["control:*"]
    if begins == "distance" and measured.endswith("-accuracy"):
        spec = CHECKS["distance:*-accuracy"]
    return None if spec is None else replace(spec, name=name)


# --- decisions of officers ------------------------------------------------------------------
# Codes by regulation, with the words that the log commits to and the person reads.
REFUSALS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "gdpr": MappingProxyType(
            {
                "not-identified": "the person could not be identified (GDPR Art. 12(2), 12(6))",
                "unfounded": "manifestly unfounded (GDPR Art. 12(5)(b))",
                "excessive": "manifestly excessive, as by repetition (GDPR Art. 12(5)(b))",
                "no-ground": "no ground for erasure applies (GDPR Art. 17(1))",
                "expression": "freedom of expression and information (GDPR Art. 17(3)(a))",
                "legal-obligation": "a legal obligation or public task (GDPR Art. 17(3)(b))",
                "public-health": "public interest in public health (GDPR Art. 17(3)(c))",
                "research": "archiving, research or statistics (GDPR Art. 17(3)(d))",
                "legal-claims": "legal claims (GDPR Art. 17(3)(e))",
            }
        ),
        "ccpa": MappingProxyType(
            {
                "not-verified": "the person could not be verified (11 CCR § 7060)",
                "unfounded": "manifestly unfounded or excessive (Civ. Code § 1798.145(h)(3))",
                "transaction": "to complete a transaction (Civ. Code § 1798.105(d)(1))",
                "security": "security and integrity (Civ. Code § 1798.105(d)(2))",
                "debugging": "to repair errors (Civ. Code § 1798.105(d)(3))",
                "speech": "free speech (Civ. Code § 1798.105(d)(4))",
                "calecpa": "CalECPA (Civ. Code § 1798.105(d)(5))",
                "research": "research in the public interest (Civ. Code § 1798.105(d)(6))",
                "internal": "expected internal uses (Civ. Code § 1798.105(d)(7))",
                "legal-obligation": "a legal obligation (Civ. Code § 1798.105(d)(8))",
            }
        ),
    }
)
# Given by the retention run for a request that was open long after its deadline.
LAPSES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "gdpr": MappingProxyType(
            {"undecided": "nobody decided on it in time: send it again (GDPR Art. 12(4))"}
        ),
        "ccpa": MappingProxyType(
            {"undecided": "nobody decided on it in time: send it again (11 CCR § 7021)"}
        ),
    }
)
EXTENSIONS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "gdpr": MappingProxyType(
            {
                "complexity": "the complexity of the request (GDPR Art. 12(3))",
                "number": "the number of requests (GDPR Art. 12(3))",
            }
        ),
        "ccpa": MappingProxyType(
            {"necessary": "reasonably necessary (Civ. Code § 1798.130(a)(2)(A))"}
        ),
    }
)
PAUSES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "gdpr": MappingProxyType(
            {
                "identity": "the identity has to be confirmed (GDPR Art. 12(6))",
                "clarification": "the person was asked what the request means (Recital 63)",
            }
        ),
        "ccpa": MappingProxyType({}),  # 11 CCR § 7021(b): whatever verification takes
    }
)
COMPLAINT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gdpr": "You may complain to a supervisory authority and seek a judicial remedy "
        "(GDPR Art. 12(4), 77, 79).",
        "ccpa": "You may complain to the California Privacy Protection Agency or the "
        "Attorney General of California.",
    }
)


# --- events of the log ---------------------------------------------------------------------
About = Literal["request", "model", "key", "service-key", "master-key", "retention", "hold"]


@dataclass(frozen=True, slots=True)
class Event:
    """A kind of log entry.

    about: an erasure request, a requester's key or a legal hold, whose payload is hidden in a
    commitment; a model, whose payload is SHA-256 digests by name; or a key of the service or an
    end of retention, whose payload is public. payload: the allowed fields with their types; a
    field that ends in "-*" stands for numbered ones. Empty: the event has no details.
    """

    name: str
    about: About
    meaning: str
    payload: Mapping[str, type]

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its payload."""
        kinds = {str: "string", int: "integer", dict: "object", list: "array"}
        fixed, numbered = {}, {}
        for name, kind in self.payload.items():
            of = {"type": [kinds[kind], "null"]}
            if name.endswith("-*"):
                numbered[f"^{name.removesuffix('*')}[0-9]+$"] = of
            else:
                fixed[name] = of
        return {
            "title": self.name,
            "description": self.meaning,
            "type": "object",
            "properties": fixed,
            "patternProperties": numbered,
            "additionalProperties": False,
        }

    def check(self, payload: Mapping[str, Any]) -> None:
        """Assert that a payload has only fields of this event, with the right types."""
        for name, value in payload.items():
            field = self.payload.get(name) or self.payload.get(re.sub(r"-\d+$", "-*", name))
            assert field is not None, f"{self.name} has no field {name}: see lethe/catalogue.py"
            assert value is None or isinstance(value, field), f"{self.name}: type of {name}"


def _request(name: str, meaning: str, **payload: type) -> Event:
    return Event(f"request.{name}", "request", meaning, payload)


def _model(name: str, meaning: str, *digests: str) -> Event:
    return Event(name, "model", meaning, dict.fromkeys(digests, str))


def _key(name: str, meaning: str, **payload: type) -> Event:
    return Event(f"key.{name}", "key", meaning, payload)


def _service_key(name: str, meaning: str, *fields: str) -> Event:
    return Event(f"key.{name}", "service-key", meaning, dict.fromkeys(fields, str))


# Data with a retention period, in the order of destruction.
RETAINED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "undecided": "rows that were released to a request nobody decided on, and its drafts",
        "evidence": "evidence and scores of an ended request",
        "scope": "scope, openings, notes and callbacks of an ended request",
        "contact": "the contact address of a case",
        "case": "ticket, check of identity and key of an ended case, and its intake proof",
        "key": "whom a revoked requester's key is bound to",
        "hold": "reason, target and names of a released legal hold",
    }
)

_SERVICE_KEY = "role", "keyid", "publicKey"
_AUDIT = "audit", "config"
_EVENTS = (
    _request(
        "received",
        "an erasure request was accepted",
        model=str,
        method=str,
        scope=dict,
        records=int,
        keyid=str,
        registration=str,
        binding=str,
        regulation=str,
        due_at=str,
        body=str,
    ),
    _request(
        "on-behalf",
        "an operator submitted it for a person; how they checked who it is, who issued a code "
        "and who imported an identity; the same of cases that more of its records are for",
        case=str,
        by=str,
        ticket=str,
        checked=str,
        issued_by=str,
        imported_by=list,
        registration=str,
        shared_with=list,
    ),
    _request(
        "followed",
        "a case of the same records follows it, and gets a request of its own if this one ends "
        "without a certificate",
        case=str,
        records=list,
        on_behalf=dict,
    ),
    _request("awaiting-review", "it waits for an officer, because the log has no approval"),
    _request("approved", "an officer approved its execution", by=str),
    _request(
        "extended",
        "an officer extended its deadline; the notice says why",
        by=str,
        reason=str,
        notice=str,
        due_at=str,
    ),
    _request("paused", "an officer stopped its clock and asked the person", by=str, reason=str),
    _request("resumed", "its clock runs again", by=str, due_at=str),
    _request("noted", "an officer wrote a note; its keyed digest", by=str, note=str),
    _request("assigned", "an officer was named for it", by=str, to=str),
    _request("executing", "a worker started it"),
    _request("awaiting", "it waits for clients to send statistics", **{"for": str}),
    _request("awaiting-round", "it waits for a masked round"),
    _request(
        "executed",
        "a version without the records was published",
        head=str,
        statistics=str,
        method=str,
        draft=str,
        attempt=int,
    ),
    _request(
        "verified",
        "the judge reached a verdict",
        result=str,
        evidence=str,
        checks=str,
        scores=str,
        attempt=int,
        **{"class": str},
    ),
    _request(
        "escalated",
        "another method follows, or an operator decided how to continue",
        result=str,
        checks=str,
        attempt=int,
        method=str,
        skipped=list,
        reason=str,
        decision=str,
        operator=str,
        block=str,
    ),
    _request("needs-decision", "it waits for an operator's decision", reason=str),
    _request("decided", "an operator decided", decision=str, by=str, why=str),
    _request("certified", "its certificate is in the log", certificate=int, result=str),
    _request(
        "refused",
        "it cannot be executed, an officer refused it, or nobody decided on it long after its "
        "deadline; reason, and notice of remedies",
        reason=str,
        by=str,
        notice=str,
    ),
    _request(
        "withdrawn",
        "the requester withdrew it, or for a person the operator who had submitted it",
        reason=str,
        by=str,
    ),
    _request("failed", "it was abandoned or ended with an error", reason=str),
    _model(
        "model.registered",
        "a model was registered",
        "config",
        "policy",
        "canary",
        "noise",
        "silo-*",
        "previous-silo-*",
        "upload",
    ),
    _model(
        "model.version",
        "a version was published",
        "head",
        "statistics",
        "retained",
        "retained-*",
        "added",
        "start",
        "held-out",
    ),
    _model("model.held-out", "held-out rows were stored or removed", "rows"),
    _model("model.repeated", "a training was repeated, bit for bit", "head", "statistics"),
    _model("model.people", "identities of records were added or erased", "people", "nonce"),
    _model("model.judging", "a judgement by samples started", "head", "seed"),
    _model(
        "model.silos",
        "the public keys of silos changed, or an earlier one no longer counts",
        "silo-*",
        "previous-silo-*",
    ),
    _model("model.quarantined", "the model went out of service"),
    _model("model.released", "the model went back into service"),
    _model(
        "model.deleted",
        "the model was deleted with its rows, keys, files and identities",
        "config",
        "head",
        "statistics",
        "retained",
    ),
    _model(
        "case.opened",
        "an operator looked a person up and opened a case, or a part of it was replaced",
        "contact",
        "part",
        "replaces",
    ),
    _model(
        "case.intake",
        "a person opened it on the intake page, how they proved it, and who issued a code",
        "proof",
        "issuer",
    ),
    _model("case.contact", "an operator opened the contact address of a case", "part"),
    _model("case.closed", "an operator closed a case; its contact is destroyed", "part"),
    _key(
        "registered",
        "an operator registered a key, and bound it",
        keyid=str,
        role=str,
        public_key=str,
        binding=str,
        bound=str,
        by=str,
    ),
    _key("confirmed", "another person confirmed whose key it is", keyid=str, by=str),
    _model("contribution.received", "rows or statistics were contributed", "upload", "addBack"),
    _model("contribution.learned", "the model learned them", "upload", "addBack"),
    _model("contribution.failed", "the model could not learn them"),
    _model("round.opened", "a masked round was opened", "plan"),
    _model("round.received", "a member's masked input arrived", "message"),
    _model("round.summed", "the model learned the members' sum"),
    _model("round.failed", "the round failed"),
    _model("audit.started", "a method audit started", *_AUDIT, "method"),
    _model("audit.reported", "its report was signed", *_AUDIT, "report", "code"),
    _model("audit.failed", "it could not be completed", *_AUDIT),
    _model("audit.stopped", "an operator stopped it", *_AUDIT),
    Event(
        "hold.placed",
        "hold",
        "a legal hold keeps data of a case, request or model past the end of its retention",
        {"of": str, "target": str, "reason": str, "by": str},
    ),
    Event("hold.released", "hold", "somebody else released it", {"by": str}),
    Event(
        "retention.ended",
        "retention",
        "data whose retention ended was destroyed: numbers by kind, and a digest of the items",
        {"counts": dict, "before": dict, "items": str},
    ),
    _service_key(
        "announced",
        "the first key of its role, which signs from the log's start",
        *_SERVICE_KEY,
    ),
    _service_key(
        "rotated",
        "a key that signs from this entry on, in place of the last",
        *_SERVICE_KEY,
        "replaces",
    ),
    _service_key(
        "revoked",
        "a key whose signatures are refused from this entry on",
        *_SERVICE_KEY,
        "reason",
    ),
    Event(
        "master-key.rotated",
        "master-key",
        "a master key that opens the root secret, as the last one does; the names are random",
        {"keyid": str, "replaces": str},
    ),
    Event(
        "master-key.revoked",
        "master-key",
        "a master key that no longer opens anything",
        {"keyid": str, "reason": str},
    ),
)
EVENTS: Final[Mapping[str, Event]] = MappingProxyType({event.name: event for event in _EVENTS})


def check_event(about: About, name: str, payload: Mapping[str, Any]) -> None:
    """Assert that the event exists for this subject and may have this payload."""
    assert name in EVENTS, f"no event is called {name}: add it to lethe/catalogue.py"
    assert EVENTS[name].about == about, name
    EVENTS[name].check(payload)


# --- notices: what webhooks subscribe to -----------------------------------------------------
NOTICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "request.received": "an erasure request was accepted",
        "request.confirmed": "an operator logged how the identity of its person was checked",
        "request.decided": "an officer or operator decided; `decision` says what",
        "request.extended": "an officer extended its deadline; `due_at` is the new one",
        "request.certified": "its certificate is in the log",
        "request.withdrawn": "it was withdrawn",
        "request.failed": "it ended with an error",
        "request.overdue": "its deadline has passed and it is still open",
        "version.ready": "a version of a model was published",
        "key.alarm": "the service found something that its keys do not vouch for; see `alarm`",
    }
)
