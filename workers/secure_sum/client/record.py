"""A member's own record: its contributions by round, and its peers' signed statements.

The service is not trusted for any of it. The file holds record ids and a secret, so only its
owner may read it; ids of released records are removed when their round is done.
"""

import fcntl
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lethe.client.answers import Document
from lethe.files import write_durably
from workers.errors import RefusedError
from workers.secure_sum.errors import PlanError, SecrecyError
from workers.secure_sum.messages import Statement, opposite
from workers.secure_sum.plan import RoundPlan

KIND = "lethe/member-record/1"
KEPT = 200  # rounds of a model without an input, and finished rounds with statements
JOINED = "joined"  # the state of a round to which this member sent no input
Models = dict[str, dict[str, Any]]
REMEDY = (
    "; ask the others whether their records are to be erased, and for a round in which more "
    "members add or release something; if all agree, join with --allow-few-left"
)


@dataclass(frozen=True, slots=True)
class Least:
    """A member's minimum for every round: contributors and records in the sum."""

    contributors: int = 3
    rows: int = 10


@dataclass
class Record:
    """The record; without a path only in memory, as in tests and demonstrations."""

    path: Path | None = None
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    models: Models = field(default_factory=dict)

    def begin(self, plan: RoundPlan) -> list[str]:
        """Note that this member joins a round; return warnings about it.

        Raises:
            PlanError: The plan contradicts an earlier one: another plan of the same round,
                smaller bounds or another configuration of the model, or a round to which this
                member has sent its input already.
        """
        known = self.models.get(plan.model)
        if known is None:
            known = self.models[plan.model] = {"held": [], "rounds": {}}
        else:
            self._check(known, plan)
        rounds: dict[str, dict[str, Any]] = known["rounds"]
        before = [one["members"] for key, one in rounds.items() if key != plan.round_id]
        left = set(before[-1]) - set(plan.members) if before else set()
        known.update(
            configuration=plan.configuration,
            contributors=plan.least_contributors,
            rows=plan.least_rows,
        )
        known["rounds"][plan.round_id] = {
            "members": list(plan.members),
            "plan": plan.digest.hex(),
            "state": JOINED,
        }
        _shorten(known["rounds"])
        self._write()
        return [f"members that were in the last round and are not in this: {len(left)}"] * bool(
            left
        )

    def check_model(self, model: str) -> None:
        """Return if this member sent inputs to this model before, or to no other.

        Raises SecrecyError otherwise. `confirm` compares the sums of one model: with the same
        rows in a second one, and one member fewer, the difference of both sums would be what
        that member sent.
        """
        to = {
            name
            for name, known in self.models.items()
            if any(one["state"] != JOINED for one in known["rounds"].values())
        }
        if to and model not in to:
            raise SecrecyError(
                f"the round is of the model {model}, and this member has sent inputs to "
                f"{len(to)} other model{'s' * (len(to) > 1)}: sums of the same rows in two "
                "models show what a member sent that is in one alone. If all members agree to "
                f"add them, join with --model {model}"
            )

    def held(self, model: str) -> set[str]:
        """Return the records that this member added to a model and has not released."""
        return set(self.models[model]["held"])

    def adopt(self, model: str, held: Iterable[str]) -> None:
        """Start the record of a model with the records that the service reports as held.

        Raises RefusedError if there is a record, which overrides the service.
        """
        known = self.models[model]
        if known["held"] or any(one["state"] != JOINED for one in known["rounds"].values()):
            raise RefusedError(
                "this member has a record of this model, so the service's is not taken "
                "over: leave out --adopt-held"
            )
        known["held"] = sorted(held)
        self._write()

    def check_held(self, model: str, own: Iterable[str], recorded: Iterable[str]) -> None:
        """Return if the service claims to hold no row that this member never added.

        Raises SecrecyError if it claims one. A member that believed it would add nothing and
        leave another member's input alone in the sum.
        """
        foreign = set(recorded) & set(own) - self.held(model)
        if foreign:
            raise SecrecyError(
                f"the service says that it holds {len(foreign)} records that this member has "
                "no record of adding: tell the other members. If this member's record was "
                "lost, join once with --adopt-held"
            )

    def check_release(self, model: str, requested: Iterable[str]) -> None:
        """Return if all records to be released were added by this member.

        Raises SecrecyError if some were not.
        """
        foreign = set(requested) - self.held(model)
        if foreign:
            raise SecrecyError(
                f"the service asks to release {len(foreign)} records that this member has no "
                "record of adding: nothing is released"
            )

    def sent(self, plan: RoundPlan, adds: Iterable[str], releases: Iterable[str]) -> None:
        """Note a masked input's records before sending: from here on it may be summed."""
        self._round(plan).update(adds=list(adds), releases=list(releases), state="sent")
        self._write()

    def confirm(
        self,
        plan: RoundPlan,
        stated: Mapping[str, Statement],
        signed: Iterable[bytes],
        *,
        few_left: bool = False,
    ) -> None:
        """Note the members about to be summed, with their signed statements.

        few_left: whether fewer than the minimum may be left of an earlier sum by releases.

        Raises SecrecyError if the difference between an earlier round's sum and this one, or
        both sums together, would expose the inputs of too few members: a service that has the
        others release what they added is left with what one of them added.
        """
        own = self._round(plan)
        now = _contents(stated)
        for round_id, one in self.models[plan.model]["rounds"].items():
            if round_id == plan.round_id or "contents" not in one:
                continue
            before = one["contents"]
            negated = {name: _opposite(content) for name, content in before.items()}
            sums = [("differ by", before, "")]
            if not few_left:
                sums.append(("add up to", negated, REMEDY))
            for how, gone, remedy in sums:
                left = {name for name in {*now, *before} if now.get(name) != gone.get(name)}
                if 0 < len(left) < plan.least_contributors:
                    raise SecrecyError(
                        f"this sum and that of round {round_id} {how} what {len(left)} members "
                        f"sent, and {plan.least_contributors} are the least: nothing is "
                        f"revealed{remedy}"
                    )
        own.update(
            contents=now,
            state="confirmed",
            statements=[data.decode() for data in signed],
        )
        self._write()

    def unsettled(self, model: str) -> list[str]:
        """Return the rounds with an input sent and no known outcome."""
        rounds = self.models.get(model, {"rounds": {}})["rounds"]
        return [key for key, one in rounds.items() if one["state"] in ("sent", "confirmed")]

    def ended(self, model: str, work: Document) -> None:
        """Note how a round ended, as the service reports it.

        `done` is believed: a lie makes this member add less, and others see its count. After
        `failed` the same rows may be added again, which `confirm` checks. A round without an
        input stays `joined`.
        """
        one = self.models.get(model, {"rounds": {}})["rounds"].get(work["id"])
        if one is None or one["state"] not in ("sent", "confirmed"):
            return
        known = self.models[model]
        adds, releases = one.pop("adds", []), one.pop("releases", [])
        if work["counted"]:
            known["held"] = sorted({*known["held"], *adds} - {*releases})
        one["state"] = "done" if work["counted"] else "failed"
        self._write()

    def _check(self, known: dict[str, Any], plan: RoundPlan) -> None:
        if known["configuration"] != plan.configuration:
            raise PlanError(
                "the model's configuration differs from that of an earlier round: "
                "leave this round and ask the operator"
            )
        if (plan.least_contributors, plan.least_rows) != (known["contributors"], known["rows"]):
            raise PlanError(
                "the minimum numbers of contributors or records differ from those of an "
                "earlier round: leave this round and ask the operator"
            )
        one = known["rounds"].get(plan.round_id)
        if one is not None and one["plan"] != plan.digest.hex():
            raise PlanError(
                "the service shows another plan of a round that this member joined "
                "before: leave it and ask the operator"
            )
        if one is not None and one["state"] != JOINED:
            raise PlanError(
                "this member has already sent its input to this round, and the masks were "
                "lost with that process: it has dropped out"
            )

    def _round(self, plan: RoundPlan) -> dict[str, Any]:
        found: dict[str, Any] = self.models[plan.model]["rounds"][plan.round_id]
        return found

    def _write(self) -> None:
        if self.path is not None:
            document = {"kind": KIND, "models": self.models, "secret": self.secret.hex()}
            write_durably(self.path, json.dumps(document, indent=1).encode())


@contextmanager
def open_record(path: Path) -> Iterator[Record]:
    """Yield the record of a file, empty if there is none, under an exclusive lock.

    Raises RefusedError if another process has it open, or it is not a record.
    """
    with path.with_name(path.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                "another process takes part with this record: wait for its end"
            ) from None
        yield _read(path)


def _read(path: Path) -> Record:
    if not path.exists():
        return Record(path)
    try:
        document = json.loads(path.read_bytes())
        if document["kind"] != KIND:
            raise ValueError
        return Record(path, bytes.fromhex(document["secret"]), document["models"])
    except (KeyError, TypeError, ValueError):
        raise RefusedError(
            "the member's record cannot be read: restore it from a copy; without it this "
            "member cannot know what it added"
        ) from None


def _shorten(rounds: dict[str, dict[str, Any]]) -> None:
    """Drop what `confirm` does not need, beyond the last KEPT of each kind.

    Once an input was sent, the server may have the sum, whatever it reports: its contents are
    kept for good, or enough aborted rounds would make `confirm` forget it.
    """
    joined = [key for key, one in rounds.items() if one["state"] == JOINED]
    for key in joined[:-KEPT]:
        del rounds[key]
    done = [one for one in rounds.values() if one["state"] == "done"]
    for one in done[:-KEPT]:
        one.pop("statements", None)


def _contents(stated: Mapping[str, Statement]) -> dict[str, str]:
    """Return the digest of each contributor's input, by member."""
    return {name: one.content.hex() for name, one in stated.items() if one.moved}


def _opposite(content: str) -> str:
    return opposite(bytes.fromhex(content)).hex()
