"""The report of a period: counted from the log's entries, and checked as its reader would.

Methods and checks come from the certificates of the range. Each is checked against its own log
entry, so changing a table cannot change the counts.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from hashlib import sha256
from typing import Any

from sqlmodel import Session, col, select

from app.ledger.storage import NodeTable, read_leaves
from app.problems import BadCursorError, PeriodChangedError
from app.service.context import Services
from app.service.issued.public_log import latest_head
from lethe.certificates.bundle import pae
from lethe.certificates.statement import Statement, parse_statement
from lethe.log.entries import HASHEDREKORD, Leaf, parse_leaf
from lethe.log.proofs import ProofError
from lethe.log.ranges import prove_range
from lethe.report import period
from models import Certificate

CHUNK = 10_000  # entries read at once


def report(services: Services, first: date, last: date) -> bytes:
    """Return the report (RFC 8785 JSON) of the days from `first` to `last`, both included.

    Raises BadCursorError: the last day is before the first; PeriodChangedError: the database
    does not match the log.
    """
    if last < first:
        raise BadCursorError("`to` is before `from`: exchange them")
    with services.reading() as session:
        note, size = latest_head(session)
        entries = [
            entry
            for start in range(0, size, CHUNK)
            for entry in read_leaves(session, start, min(start + CHUNK, size))
        ]
        leaves = [parse_leaf(entry) for entry in entries]
        counted = period.count(leaves, first, last)
        proof = NodeTable(session, services.ledger.nodes).compute(
            lambda read: prove_range(counted.start, counted.end, size, read)
        )
        statements = _statements(session, leaves, counted.start, counted.end)
    verifier = services.ledger.verifier
    data = period.build(
        counted,
        first,
        last,
        methods=_methods(statements),
        checks=_checks(statements),
        log=period.log_part(verifier.name, proof, note),
    )
    try:
        period.check(data, verifier, entries)
    except (period.PeriodError, ProofError) as error:
        raise PeriodChangedError(
            f"{error.detail}: the database was changed, run `lethe log fsck`"
        ) from None
    return data


def _statements(
    session: Session, leaves: Sequence[Leaf], start: int, end: int
) -> list[Statement]:
    """Return the statements of the certificates among the entries, in their order."""
    query = (
        select(Certificate)
        .where(col(Certificate.log_index) >= start, col(Certificate.log_index) < end)
        .order_by(col(Certificate.log_index))
    )
    payloads: dict[int, bytes] = {}
    for row in session.exec(query):
        payload = base64.b64decode(row.envelope["payload"])
        encoded = pae(row.envelope["payloadType"], payload)
        if leaves[row.log_index].digests.get("sha256") == sha256(encoded).hexdigest():
            payloads[row.log_index] = payload
    logged = [at for at in range(start, end) if leaves[at].kind == HASHEDREKORD]
    if sorted(payloads) != logged:
        raise PeriodChangedError(
            "a certificate of the period is missing or is not the one in the log: "
            "run `lethe log fsck`"
        )
    return [parse_statement(payloads[at]) for at in logged]


def _methods(statements: Iterable[Statement]) -> list[Mapping[str, Any]]:
    certificates, records = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for one in statements:
        key = one.predicate.method.id, str(one.predicate.guarantee.class_)
        certificates[key] += 1
        records[key] += one.predicate.scope.records
    return [
        {"method": key[0], "guarantee": key[1], "certificates": number, "records": records[key]}
        for key, number in sorted(certificates.items())
    ]


def _checks(statements: Iterable[Statement]) -> list[Mapping[str, Any]]:
    passed = Counter[tuple[str, bool]](
        (check.name, check.passed) for one in statements for check in one.predicate.checks
    )
    names = sorted({name for name, _ in passed})
    return [
        {"check": name, "passed": passed[name, True], "failed": passed[name, False]}
        for name in names
    ]
