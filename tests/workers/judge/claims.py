"""True claims of a small erasure, for tests to falsify one thing at a time."""

import hashlib
import hmac
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tests.lethe.certificates.tree_oracle import oracle_root
from tests.workers.methods.ridge import oracle
from workers.arrays import Rows
from workers.judge.base import Probe, PurgeClaim, RetainedSetClaim
from workers.judge.merkle import merkle_root
from workers.judge.ridge.claim import (
    BlockClaim,
    ChainClaim,
    ClaimedStatistics,
    ExactClaim,
    LinkClaim,
    RemovalClaim,
    RemovedLeaf,
    RidgeClaim,
)
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.gram import statistics_digest

N, D, C = 40, 7, 3
ERASED = (4, 11, 30)


@dataclass(frozen=True)
class Erasure:
    rows: Rows  # before
    retained: Rows
    config: RidgeConfig
    after: RidgeState


def erasure(seed: int = 0, *, unseen: bool = False) -> Erasure:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, N, D, C)
    codes = rows.codes.copy()
    codes[:, 2] = 0  # a silent column
    rows = Rows(codes, rows.labels)
    exponents = tuple(int(e) for e in rng.integers(-16, -10, D))
    config = RidgeConfig(D, C, exponents, 16, 0.3, unseen)
    state = METHOD.learn(config, None, rows).state
    after = METHOD.forget(config, state, oracle.only(rows, ERASED)).state
    return Erasure(rows, oracle.without(rows, ERASED), config, after)


def ridge_claim(state: RidgeState, config: RidgeConfig) -> RidgeClaim:
    return RidgeClaim(
        dimension=config.dimension,
        classes=config.classes,
        exponents=config.exponents,
        bits=config.bits,
        penalty=config.penalty,
        statistics_digest=statistics_digest(
            state.statistics, config.exponents, config.bits, config.penalty
        ),
        head=state.head,
        witness=state.witness,
        bound=state.bound,
    )


RETAINED = [row for row in range(N) if row not in ERASED]
OWNER = ("north", "anna")


def salt(of: str, row: int) -> bytes:
    return hashlib.sha256(f"{of} {row}".encode()).digest()


def commitment(row: int) -> bytes:
    return hmac.digest(salt("id", row), str(row).encode(), "sha256")


def content(row: int, rows: Rows, place: int) -> bytes:
    """The digest of a stored row by its definition."""
    names = (hashlib.sha256(name.encode()).digest() for name in OWNER)
    codes = rows.codes[place].tolist()
    values = struct.pack(f"<q{len(codes)}h", rows.labels[place], *codes)
    return hashlib.sha256(
        b"".join([b"lethe/row/v2\0", *names, salt("row", row), values])
    ).digest()


def retained_set_claim() -> RetainedSetClaim:
    before = sorted(commitment(row) for row in range(N))
    after = sorted(commitment(row) for row in range(N) if row not in ERASED)
    return RetainedSetClaim(
        before=before,
        after=after,
        erased=[commitment(row) for row in ERASED],
        before_root=merkle_root(before),
        before_count=len(before),
        after_root=merkle_root(after),
        after_count=len(after),
    )


def purge_claim() -> PurgeClaim:
    return PurgeClaim(
        probes=[Probe("head", "ab" * 32, False), Probe("state", "cd" * 32, False)],
        erased_rows=[str(row) for row in ERASED],
        retained_rows=[str(row) for row in range(N) if row not in ERASED],
    )


def block(rows: Rows, numbers: Sequence[int]) -> BlockClaim:
    """Stored rows of the records with these numbers, all of one owner."""

    def salts(of: str) -> NDArray[np.uint8]:
        data = b"".join(salt(of, row) for row in numbers)
        return np.frombuffer(data, np.uint8).reshape(-1, 32)

    learned = np.ones(len(numbers), dtype=np.int64)
    names = [str(row) for row in numbers]
    return BlockClaim(*OWNER, names, rows, salts("row"), salts("id"), learned)


def sets(stays: Mapping[int, bytes], gone: Mapping[int, bytes]) -> tuple[ChainClaim, LinkClaim]:
    """The claims about sets of records with these contents, by the log and by a request."""
    after = {commitment(row): leaf for row, leaf in stays.items()}
    before = after | {commitment(row): leaf for row, leaf in gone.items()}
    ends = oracle_root(before), len(before), oracle_root(after), len(after)
    removed = [RemovedLeaf(commitment(row), leaf, 1) for row, leaf in gone.items()]
    erased = [(str(row), salt("id", row), commitment(row)) for row in gone]
    return ChainClaim(*ends, removed), LinkClaim(erased, [], [], *ends)


def with_rows(claim: ExactClaim, rows: Rows) -> ExactClaim:
    """The claim, as if these rows were those of the first retained records of both versions."""
    numbers = RETAINED[: len(rows)]
    stays = {row: content(row, rows, place) for place, row in enumerate(numbers)}
    chain, link = sets(stays, dict.fromkeys(ERASED, bytes(32)))
    own = replace(claim.removals[0], link=link)
    return replace(claim, rows=[block(rows, numbers)], chain=chain, removals=[own])


def unseen(claim: ExactClaim, messages: Sequence[ClaimedStatistics]) -> ExactClaim:
    """The claim of a model whose rows were never sent: only the ids of its records are here."""
    nothing = bytes(32)
    chain, link = sets(dict.fromkeys(RETAINED, nothing), dict.fromkeys(ERASED, nothing))
    return replace(
        claim,
        rows=[],
        messages=messages,
        unseen={str(row): commitment(row) for row in RETAINED},
        chain=chain,
        removals=[replace(claim.removals[0], link=link)],
    )


def exact_claim(of: Erasure) -> ExactClaim:
    blocks = [
        block(oracle.only(of.retained, range(start, len(RETAINED), 3)), RETAINED[start::3])
        for start in range(3)
    ]
    chain, link = sets(
        {row: content(row, of.rows, row) for row in RETAINED},
        {row: content(row, of.rows, row) for row in ERASED},
    )
    removal = RemovalClaim(link, replace(purge_claim(), retained_rows=()))
    return ExactClaim(ridge_claim(of.after, of.config), blocks, chain, [removal])
