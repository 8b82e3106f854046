"""What witnesses show of a log that lost entries, before anything is signed again.

Keys of a backup do not show what was signed after it, nor does a mirror that is behind. A
witness answers its operator's log alone, and remembers the last checkpoint that it cosigned.
"""

from collections.abc import Collection

from sqlmodel import Session

from app.ledger.recover import EVERY, RecoverError, Witnessed
from app.ledger.sequencer import Ledger
from app.settings import Settings
from app.witnesses.policy import load_policy
from app.witnesses.rows import Rows
from app.witnesses.standing import asked_at, label_of
from lethe.log.policy import Policy
from lethe.witness.ask import Asker, WitnessFailureError
from models.database.session import reading


def ask_witnesses(
    settings: Settings, ledger: Ledger, without: Collection[str]
) -> list[Witnessed]:
    """Return what each witness of the policy shows as its last checkpoint of this log.

    without: labels of witnesses that may show nothing, or EVERY.

    Raises RecoverError: a label is of no witness, or this log has witnesses and no policy is
    set; SettingsError: the policy cannot be used.
    """
    policy = load_policy(settings, ledger.keys)
    if policy is None:
        _require_unwitnessed(ledger, without)
        return []
    labels = {label_of(first) for first, *_ in asked_at(policy).values()}
    if unknown := set(without) - labels - {EVERY}:
        raise RecoverError(
            f"no witness of the policy is {' or '.join(sorted(unknown))}: they are "
            f"{', '.join(sorted(labels))}"
        )
    return _ask(policy, ledger)


def _ask(policy: Policy, ledger: Ledger) -> list[Witnessed]:
    found = []
    for url, keys in asked_at(policy).items():
        asker = Asker(url, keys)
        try:
            found.append(Witnessed(label_of(keys[0]), asker.held(ledger.keys)))
        except WitnessFailureError as error:
            found.append(Witnessed(label_of(keys[0]), None, error.detail))
        finally:
            asker.close()
    return found


def _require_unwitnessed(ledger: Ledger, without: Collection[str]) -> None:
    """Refuse to go on without a policy where the restored database says that there was one."""
    with Session(reading(ledger.engine)) as session:
        asked = Rows(ledger).are_asked(session)
    if asked and EVERY not in without:
        raise RecoverError(
            "LETHE_WITNESS_POLICY is not set, and this log has witnesses: set it, or go on "
            f"without knowing what they cosigned by --without-witness {EVERY}"
        )
