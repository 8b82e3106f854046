"""The verifiers of `exact-retrained` and `exact` for models that are fitted in one go.

1 model-file    2 data    3 retained-set    4 purge    5 registration    6 re-execution
7 rows-before    8 untouched-shards, of shards

The model was fitted again from the stored rows, outside; here its bytes are compared with the
published ones. There is no start to compare: a fit begins with nothing. A recipe was retrained
when it was executed; a forest was updated, and is fitted here for the first time. Of shards
those are fitted that held the rows, and put together with the others.
"""

from dataclasses import dataclass

from lethe.catalogue import CHECKS, VERIFIERS
from workers.judge.base import Judgement, PurgeClaim, Report, RetainedSetClaim
from workers.judge.checks import guarded, judged, report_of
from workers.judge.digests import SHA256, check_digests, check_model_file, check_pairs
from workers.judge.retention import check_retention
from workers.judge.sharded import UNTOUCHED, ShardsClaim, check_untouched

DATA, RERUN = CHECKS["data"], CHECKS["re-execution"]


@dataclass(frozen=True, slots=True)
class RefittedClaim:
    """A published model that was fitted anew on the retained rows. Digests are hex SHA-256.

    file_digest: recomputed from the model file. claimed_data, data: of the rows, as the fit
    says and as they are stored. registration: logged, and of the model as it is.
    refitted_digest: of the verifier's own fit; environment_equal: whether that had the
    versions and the hardware of the judged one. rows_before: digests of all rows of the
    version before, as published, and of those that are stored with those that went. shards:
    of a model that has some.
    """

    retained_set: RetainedSetClaim
    purge: PurgeClaim
    published_digest: str
    file_digest: str
    refitted_digest: str
    claimed_data: str
    data: str
    registration: tuple[str, str]
    environment_equal: bool
    rows_before: tuple[str, str]
    shards: ShardsClaim | None = None


def check_refit(claim: RefittedClaim) -> Judgement:
    """Judge the repeated fit: other bytes in an equal environment refute, elsewhere not."""
    found = claim.refitted_digest
    if not SHA256.fullmatch(found):
        return judged(RERUN, "a digest is not SHA-256 in lower-case hex", passed=False)
    if found == claim.published_digest:
        return judged(RERUN, f"the whole fit, sha256 {found}", passed=True)
    if claim.environment_equal is True:
        return judged(RERUN, "the fit ends with another model", passed=False)
    problem = "the fit ends with another model, in another environment"
    return judged(RERUN, problem, passed=False, undecided=True)


@dataclass(frozen=True, slots=True)
class RefittedVerifier:
    """Judges a model by the verifier's own fit on the retained rows."""

    id: str
    version: str

    def verify(self, claim: RefittedClaim) -> Report:
        """Return the numbered verdict. Never raises for anything a claim may contain."""
        shards = claim.shards
        return report_of(
            [
                check_model_file(claim.published_digest, claim.file_digest),
                guarded(DATA, lambda: check_digests(DATA, claim.claimed_data, claim.data)),
                *check_retention(claim.retained_set, claim.purge),
                *check_pairs({"registration": claim.registration}),
                guarded(RERUN, lambda: check_refit(claim)),
                *check_pairs({"rows-before": claim.rows_before}),
                *([] if shards is None else _untouched(shards)),
            ]
        )


def _untouched(shards: ShardsClaim) -> list[Judgement]:
    return [guarded(UNTOUCHED, lambda: check_untouched(shards))]


VERIFIER = RefittedVerifier("exact-retrained", VERIFIERS["exact-retrained"])
EXACT = RefittedVerifier("exact", VERIFIERS["exact"])
