"""Pack a federation as the registration of a ridge head for POST /v1/models.

The extractor runs here, beside the data: only features are sent. The quantiser's steps come
from held-out rows alone, which are never trained on, so no erasure can affect the steps.
"""

import io
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lethe.identity import HELD_OUT
from workers.arrays import Rows
from workers.data.extractors.base import Extractor
from workers.data.federation import Federation, counted
from workers.data.identities import rows_to_send, to_send
from workers.errors import RefusedError
from workers.methods.ridge.base import RidgeConfig, method_named
from workers.methods.ridge.statistics.gram import accumulate
from workers.methods.ridge.statistics.quantiser import calibrate
from workers.registration.recipe import RecipeRegistration

DEFAULT_PENALTY = 1.0  # fixed beforehand: choosing it by fitting would depend on every row


@dataclass(frozen=True, slots=True, eq=False)
class RidgeRegistration(RecipeRegistration):
    """A registration whose held-out rows choose the quantiser's steps.

    clipped: numbers beyond the quantiser's range, learned as its end. lost: features of which
    the steps leave nothing but 0, such as those that are 0 in all held-out rows.
    """

    clipped: int = 0
    lost: int = 0
    held_out_use: ClassVar[str] = "calibrate the quantiser"

    def lines(self) -> list[str]:
        """Return what is learned as another number, for people, one sentence per line."""
        found = []
        if self.clipped:
            found.append(clipped_words(self.clipped))
        if self.lost:
            lost = counted(self.lost, "feature")
            found.append(f"rounded to 0 in every row: {lost}, too small for the steps")
        return found


def clipped_words(count: int) -> str:
    """Return the words for numbers that are learned as the end of the quantiser's range."""
    return f"clipped: {counted(count, 'number')} beyond twice the largest held-out one"


def prepare(
    federation: Federation,
    extractor: Extractor,
    *,
    ref: str,
    method: str = "ridge-exact",
    bits: int = 16,
    penalty: float = DEFAULT_PENALTY,
    data: str = "rows",
    send_held_out: bool = False,
) -> RidgeRegistration:
    """Extract features, calibrate the quantiser and pack a registration.

    If the rows stay with clients (`data` statistics or masked), only the manifest is sent, and
    held-out rows if `send_held_out` is set.

    Raises RefusedError if the federation has no held-out rows, or the features are unusable;
    PenaltyError, naming one that suffices, if the service would refuse to fit the rows.
    """
    held_out = federation.is_test
    if not held_out.any():
        raise RefusedError(
            "no row is held out, and held-out rows alone choose the quantiser's steps: hold "
            "some out with --holdout, or give clients more than one row"
        )
    features = extractor.extract(federation.features)
    quantiser = calibrate(features[held_out], bits)
    train = ~held_out
    records = [str(record) for record in federation.records[train].tolist()]
    clients = [str(client) for client in federation.clients[train].tolist()]
    owners = federation.clients if federation.subjects is None else federation.subjects
    subjects = [str(subject) for subject in owners[train].tolist()]
    evaluation = {}
    if send_held_out:
        everyone = {
            "clients": federation.clients.astype(np.str_),
            "records": federation.records.astype(np.str_),
            "subjects": owners.astype(np.str_),
        }
        labels = federation.labels.astype(np.int64)
        evaluation = rows_to_send(features, labels, everyone, held_out)
    sent = {**to_send(federation.identities, federation.records, held_out), **evaluation}
    clipped = lost = 0
    if data == "rows":
        codes, clipped = quantiser.quantise(features[train])
        lost = int((~codes.any(axis=0) & features[train].any(axis=0)).sum())
        rows = Rows(codes, federation.labels[train].astype(np.int64))
        shape = features.shape[1], len(federation.label_names)
        statistics = accumulate([rows], *shape, bits=bits)
        config = RidgeConfig(*shape, quantiser.exponents, bits, penalty)
        method_named(method).check_penalty(config, statistics)
        sent |= {
            "features": features[train],
            "labels": federation.labels[train].astype(np.int64),
            "clients": np.array(clients),
            "records": np.array(records),
            "subjects": np.array(subjects),
        }
    else:
        sent = {name: array for name, array in sent.items() if name.startswith(HELD_OUT)}
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **sent)
    manifest = {
        "ref": ref,
        "method": method,
        "classes": list(federation.label_names),
        "exponents": list(quantiser.exponents),
        "bits": bits,
        "penalty": penalty,
        "data": data,
        "extractor": {
            "id": extractor.id,
            "digest": extractor.digest,
            "parameters": {k: str(v) for k, v in extractor.parameters.items()},
        },
    }
    return RidgeRegistration(
        manifest,
        packed.getvalue(),
        features[held_out],
        federation.labels[held_out].astype(np.int64),
        records,
        clients,
        subjects,
        names_held_out=bool(federation.identities) and bool(held_out.any()),
        sends_held_out=bool(evaluation),
        clipped=clipped,
        lost=lost,
    )
