"""A member's loop through one round: poll, answer the open step, poll again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, sleep

from lethe.client.answers import Document
from lethe.client.errors import ProblemError, UnreachableError
from lethe.signing.keys import PrivateKey
from workers.errors import RefusedError
from workers.secure_sum.client.contribution import check_manifest, contribute
from workers.secure_sum.client.record import Least, Record
from workers.secure_sum.client.service import RoundClient
from workers.secure_sum.client.view import checked
from workers.secure_sum.errors import PlanError, RoundError
from workers.secure_sum.local import LocalRows
from workers.secure_sum.member import Member
from workers.secure_sum.plan import RoundPlan, parse_plan
from workers.secure_sum.signing import Roster
from workers.secure_sum.spelling import to_bytes

PAUSE_S = 1.0
POLLS = 10  # a second, of all members of a round together
PATIENCE_S = 600.0  # a restart takes seconds, and the masks cannot be recreated
ENDED = ("done", "failed")
Say = Callable[[str], None]


@dataclass
class Joining:
    """One member in one round. Its secrets live in this object and die with it.

    rows: all rows of the member. roster: the pinned keys of its peers. add: whether to add
    rows not added before; otherwise the member only releases. record: this member's
    contributions so far; least: its requirements on a round beyond the plan; adopt: whether
    an empty record starts with what the service reports. few_left: as in `Record.confirm`.
    model: the round must be of this one; None: of the record's.
    """

    service: RoundClient
    round_id: str
    keyid: str
    key: PrivateKey
    roster: Roster
    rows: LocalRows
    record: Record
    add: bool = True
    least: Least = field(default_factory=Least)
    adopt: bool = False
    few_left: bool = False
    model: str | None = None
    say: Say = lambda _: None
    plan: RoundPlan | None = None
    member: Member | None = None
    manifest: Document | None = None  # as compared with the plan
    taken: set[str] = field(default_factory=set)

    def run(self, *, timeout: float | None = None, pause: float | None = None) -> Document:
        """Take all steps; return the round as it ended, done or failed.

        pause: the seconds between two polls; by default 1, in rounds of over 10 members more.
        Waits for a service that does not answer, because ending would mean dropping out.

        Raises:
            UnreachableError: It has not answered for PATIENCE_S seconds.
            RefusedError: This member refused to continue and has dropped out.
            ProblemError: The service refused.
            RoundError: The round went on without this member, or `timeout` seconds passed, or
                the service's view of it is malformed.
        """
        end = None if timeout is None else monotonic() + timeout
        answered = monotonic()
        while True:
            try:
                work = self.step()
            except (UnreachableError, ProblemError) as error:
                if error.status < 500 or monotonic() > answered + PATIENCE_S:
                    raise
                self.say("no answer from the service; trying again")
            else:
                answered = monotonic()
                if work["state"] in ENDED:
                    return work
            if end is not None and monotonic() > end:
                raise RoundError(
                    "the round did not end within --timeout, and continues without this "
                    "member: join the next one"
                )
            sleep(self._pause() if pause is None else pause)

    def _pause(self) -> float:
        members = 0 if self.plan is None else len(self.plan.members)
        return max(PAUSE_S, members / POLLS)

    def step(self) -> Document:
        """Poll the round and answer the open step, unless already answered."""
        work = checked(self.service.work(self.round_id))
        state = work["state"]
        if state in ENDED:
            self.record.ended(work["model"], work)
        if state in ENDED or state == "summing" or state in self.taken:
            return work
        if not work["member"]:
            raise RoundError(
                "this member did not answer a step in time, so the round continues "
                "without it: join the next one"
            )
        member = self._member(work)
        match state:
            case "advertise":
                message = member.advertise()
            case "share":
                message = member.share_keys(text.encode() for text in work["advertised"])
            case "masked":
                message = self._masked(member, work)
            case "confirm":
                message = self._confirm(member, work)
            case "reveal":
                message = member.reveal(text.encode() for text in work["confirmed"])
            case _:
                raise PlanError(
                    "the round is in a state that this client does not know: update the client"
                )
        try:
            self.service.send(self.round_id, state, message)
        except ProblemError as error:
            if error.slug == "conflict":
                raise RefusedError(
                    "rows of the data were erased from this model and stay erased: take them "
                    "out of the data, or join to release only; this round continues without you"
                ) from error
            raise
        self.taken.add(state)
        self.say(f"{state}: sent {len(message):,} bytes")
        return work

    def _member(self, work: Document) -> Member:
        plan = parse_plan(work["plan"])
        if plan.round_id != self.round_id or self.plan not in (None, plan):
            raise PlanError(
                "the service changed the round's plan meanwhile: nothing more is sent; "
                "tell its operator"
            )
        if self.member is None:
            self._check_model(plan)
            manifest = self.service.manifest(plan.model)
            check_manifest(plan, manifest)
            self.manifest = manifest  # another one could be shown later
            self._check_least(plan)
            for round_id in self.record.unsettled(plan.model):
                if round_id != plan.round_id:
                    self._settle(plan.model, round_id)
            warnings = self.record.begin(plan)
            self.member = Member(plan, self.keyid, self.key, self.roster, self.record.secret)
            self.plan = plan
            self.say(
                f"{plan.round_id}: {len(plan.members)} members, {plan.threshold} must stay, "
                f"{plan.least_contributors} must contribute, {plan.least_rows} records must "
                "move"
            )
            for warning in warnings:
                self.say(warning)
        return self.member

    def _check_model(self, plan: RoundPlan) -> None:
        if self.model is None:
            self.record.check_model(plan.model)
        elif plan.model != self.model:
            raise PlanError(
                f"the round is of the model {plan.model}, not of {self.model}: nothing was "
                "sent; ask the operator"
            )

    def _check_least(self, plan: RoundPlan) -> None:
        registered = (plan.least_contributors, plan.least_rows)
        if registered[0] < self.least.contributors or registered[1] < self.least.rows:
            raise PlanError(
                f"the model is registered for sums of {registered[0]} contributors and "
                f"{registered[1]} records, and you ask for {self.least.contributors} and "
                f"{self.least.rows}: "
                "smaller sums tell more of you (--least-contributors, --least-rows)"
            )

    def _settle(self, model: str, round_id: str) -> None:
        """Ask how a round ended that this member's process left early."""
        work = checked(self.service.work(round_id))
        if work["state"] in ENDED:
            self.record.ended(model, work)

    def _confirm(self, member: Member, work: Document) -> bytes:
        assert self.plan is not None
        texts = [text.encode() for text in work["statements"]]
        stated = member.statements(texts)
        message = member.confirm(texts)
        # Refuses before anything is sent.
        self.record.confirm(self.plan, stated, texts, few_left=self.few_left)
        added = sum(one.added for one in stated.values())
        released = sum(one.released for one in stated.values())
        contributors = sum(one.moved > 0 for one in stated.values())
        self.say(
            f"{contributors} of {len(stated)} members contribute: {added} records added, "
            f"{released} released"
        )
        return message

    def _masked(self, member: Member, work: Document) -> bytes:
        assert self.plan is not None
        model = self.plan.model
        if self.adopt:
            self.record.adopt(model, work["held"])
            self.adopt = False
        self.record.check_held(model, self.rows.records, work["held"])
        self.record.check_release(model, work["release"])
        assert self.manifest is not None
        own = contribute(
            self.rows,
            self.manifest,
            held=sorted(self.record.held(model)),
            release=work["release"],
            add=self.add,
        )
        self.say(f"adding {len(own.adds)} records, releasing {len(own.releases)}")
        sealed = {peer: to_bytes(text) for peer, text in work["sealed"].items()}
        message = member.masked_input(sealed, own.vector, own.adds, own.releases, own.people)
        self.record.sent(self.plan, [record for record, _ in own.adds], own.releases)
        return message


def find_round(service: RoundClient, model: str | None) -> str:
    """Return the id of the only round that waits for the signing key.

    Raises RefusedError if there is none, or several.
    """
    waiting = [item for item in service.asked_rounds() if model in (None, item["model"])]
    if len(waiting) != 1:
        raise RefusedError(
            f"{len(waiting)} rounds wait for this key: "
            + ("try again once one is open" if not waiting else "name one with --round")
        )
    return str(waiting[0]["id"])
