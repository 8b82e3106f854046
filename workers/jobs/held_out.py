"""Measure a version on the model's held-out rows, and remove held-out rows that are erased.

The figure is a report: it is published, logged with the version and shown in certificates, and
decides nothing. The judge measures again, on the file and the rows stored then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import TYPE_CHECKING, Any

from sqlmodel import Session

from app.ledger.transaction import Transaction
from app.reconcile.inputs import changed_since_received
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.models import held_out
from app.service.models.held_out import HeldOutRows
from lethe.errors import LetheError
from models import ErasureRequest, Model, ModelVersion
from models.database.session import read_by_id
from workers.errors import MissingLibraryError, ModelError
from workers.families import base as family
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.lineage.logged import OTHER_SCOPE, OtherRequestError

if TYPE_CHECKING:  # keeps numpy out of a worker's start
    from numpy.typing import NDArray

# With fewer rows a figure reveals too much: two figures whose rows differ by one row tell
# whether the model predicts that row correctly.
LEAST = 20
# Digits of a figure; with more, two R² values could reveal the label of a row between them.
DECIMALS = 4
FAILED = (ModelError, LetheError, ArithmeticError, LookupError, TypeError, ValueError)
Figure = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VersionFigure:
    """The figure that a version is published with.

    figure: on the rows `after`; None if the model has none. before: the held-out rows that the
    log has until then. gone: records that leave them, each with the request that erases it.
    """

    figure: Figure | None = None
    before: HeldOutRows | None = None
    after: HeldOutRows | None = None
    gone: Mapping[str, str] = field(default_factory=dict)


def of_upload(job: JobContext, file: bytes, rows: HeldOutRows | None) -> VersionFigure:
    """Measure a first version on the held-out rows of its registration."""
    return VersionFigure(_figure(job.services, job.model, file, rows), None, rows)


def measure(job: JobContext, file: bytes, members: Sequence[BatchMember] = ()) -> VersionFigure:
    """Measure the file of a version to be published.

    members: requests whose records, and whose clients' and subjects' held-out rows, are erased
    with it. If a forest computes its bins from held-out rows, those rows are records too.

    Raises:
        HeldOutChangedError: The stored rows differ from the logged ones.
        OtherRequestError: A request's row differs from what the log received.
    """
    services = job.services
    with services.reading() as session:
        before = held_out.stored(services, session, job.model)
        owners = [] if before is None else _owners(job, session, members)
    if before is None:
        return VersionFigure()
    by: dict[str, str] = {}
    erased = {record: one.request_id for one in members for record in one.salts}

    def leaves(record: str, client: str, subject: str) -> bool:
        if record in erased:
            by[record] = erased[record]
            return True
        for request_id, scope in owners:
            if scope.client in (None, client) and scope.subject in (None, subject):
                by[record] = request_id
                return True
        return False

    after, gone = before.without(leaves)
    if not gone:
        after = before
    return VersionFigure(_figure(services, job.model, file, after), before, after, by)


def settle(job: JobContext, tx: Transaction, model: Model, measured: VersionFigure) -> None:
    """Store the rows that a version was measured on, in the transaction that publishes it.

    Raises HeldOutChangedError, which must roll it back, if they changed since.
    """
    before, after = measured.before, measured.after
    if before is after:
        held_out.require(job.services, model, None if before is None else before.digest)
        return
    held_out.replace(job.services, tx, model, before, after)


def measured_again(services: Services, model: Model, version: ModelVersion) -> Figure:
    """Measure a version's file again for the evidence; never raises.

    There may be fewer rows by then: a figure that cannot be compared is reported as such, and
    refutes nothing.
    """
    published = version.held_out
    if published is None:
        return {}
    try:
        with services.reading() as session:
            rows = held_out.stored(services, session, model)
            file = services.artifacts.get(session, version.head_id)
    except (LetheError, OSError) as error:
        return {"heldOut": f"not compared: {type(error).__name__}"}
    if rows is None or rows.digest != published.get("set"):
        return {"heldOut": "not compared: held-out rows were removed since"}
    again = _figure(services, model, file, rows)
    if again == published:
        return {"heldOut": f"{spelled(again)}, as published"}
    return {"heldOut": f"{spelled(again)}, but published was {spelled(published)}"}


def spelled(figure: Mapping[str, Any] | None) -> str:
    """Return a figure as text."""
    if figure is None:
        return "no held-out rows"
    if "withheld" in figure:
        return f"not measured: {figure['withheld']}"
    parts = ", ".join(f"{name}: {value}" for name, value in figure.get("parts", {}).items())
    more = f" ({parts})" if parts else ""
    return f"{figure.get('metric')} {figure.get('value')} on {figure.get('rows')} rows{more}"


def _figure(
    services: Services, model: Model, file: bytes, rows: HeldOutRows | None
) -> Figure | None:
    """Measure a file on held-out rows: the value of the metric, or why there is none."""
    if rows is None:
        return None
    count = len(rows.records)
    found = {"rows": str(count), "set": rows.digest}
    if count < LEAST:
        return {**found, "withheld": f"fewer than {LEAST} rows would tell of single ones"}
    kind = family.of(model)
    try:
        retrieved = kind.retrieve_held_out(services, model, file, rows.features)
        if retrieved is not None:
            return {**found, **_retrieved(retrieved)}
        predicted = kind.predict_held_out(services, model, file, rows.features)
        if predicted is None:
            return {**found, "withheld": "this kind of model is not measured"}
        return {**found, **scored(predicted, rows.labels, classifies=bool(model.classes))}
    except MissingLibraryError as error:  # its text describes this installation only
        return {**found, "withheld": f"the model could not be evaluated: {error}"}
    except FAILED as error:
        return {
            **found,
            "withheld": f"the model could not be evaluated ({type(error).__name__})",
        }


def _retrieved(found: family.Retrieval) -> Figure:
    """Return an index's figure; rows: the number of queries."""
    return {
        "rows": str(found.queries),
        "metric": f"recall@{found.neighbours}",
        "value": _decimal(found.recall),
        "parts": {"self-retrieval": _decimal(found.itself)},
    }


def scored(predicted: "NDArray[Any]", labels: "NDArray[Any]", *, classifies: bool) -> Figure:
    """Return a metric's value; for shards that predict separately, the mean and each value.

    Raises ValueError if the predictions do not have the labels' shape.
    """
    metric = "R2"
    if classifies:
        metric = "accuracy" if labels.ndim == 1 else "pixel accuracy"
    elif labels.min() == labels.max():
        return {"withheld": "all labels are equal"}
    score = _accuracy if classifies else _r2
    if predicted.shape == labels.shape:
        return {"metric": metric, "value": _decimal(score(predicted, labels))}
    if predicted.shape[1:] != labels.shape:
        raise ValueError("what is predicted is not of the labels' shape")
    # A shard without rows predicts only -1, or NaN, which does not equal itself.
    scores = [
        score(own, labels) if (own >= 0 if classifies else own == own).any() else None
        for own in predicted
    ]
    known = [one for one in scores if one is not None]
    parts = {
        f"shard {place}": "no rows" if one is None else _decimal(one)
        for place, one in enumerate(scores)
    }
    return {"metric": metric, "value": _decimal(fsum(known) / len(known)), "parts": parts}


def _decimal(value: float) -> str:
    return f"{value:.{DECIMALS}f}"


def _accuracy(predicted: "NDArray[Any]", labels: "NDArray[Any]") -> float:
    return int((predicted == labels).sum()) / labels.size


def _r2(predicted: "NDArray[Any]", labels: "NDArray[Any]") -> float:
    """Return R² (1 minus squared error over that of the mean), whatever the rows' order."""
    mean = fsum(labels.tolist()) / len(labels)
    spread = fsum(((labels - mean) ** 2).tolist())
    return 1 - fsum(((labels - predicted) ** 2).tolist()) / spread


def _owners(
    job: JobContext, session: Session, members: Sequence[BatchMember]
) -> list[tuple[str, Scope]]:
    """Return the requests for all of a client or subject, with their scopes.

    Raises OtherRequestError if a row differs from what the log received.
    """
    requests = read_by_id(session, ErasureRequest, [one.request_id for one in members])
    if changed_since_received(job.services.ledger, session, job.model, requests):
        raise OtherRequestError(OTHER_SCOPE)
    scopes = ((one.id, Scope.model_validate(one.scope)) for one in requests)
    return [(request_id, scope) for request_id, scope in scopes if scope.records is None]
