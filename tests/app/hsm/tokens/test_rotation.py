"""Keys are rotated within a token, into it and out of it, and a killed rotation goes on."""

from collections.abc import Iterator

import pytest
from pkcs11 import Attribute, KeyType, MechanismFlag, ObjectClass

from app.cli.service_key import service_key
from app.hsm.errors import HsmError
from app.hsm.token_keys import ED25519, P256, open_key
from app.hsm.uri import parse_uri
from app.keys import rotate as rotate_module
from app.keys import rotate_log as rotate_log_module
from app.keys.issuer import NEXT_KEY as ISSUER_NEXT
from app.keys.issuer import signing_issuer
from app.keys.rotate import rotate_issuer
from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger import key_files
from app.ledger.journal import record_service_key_event
from app.ledger.key_files import KeyPlaceError
from app.ledger.log_files import LOG_KEY, NEXT_KEY
from app.ledger.startup import ISSUER_KEY, init_log, load_ledger
from app.ledger.transaction import Transaction
from app.settings import Settings
from lethe.certificates.trust_root import parse_trust_root
from lethe.log.key_changes import ROTATED, KeyChange
from lethe.signing.keys import generate_key, private_pem
from tests.app.hsm.tokens.softhsm import SoftHsm
from tests.app.hsm.tokens.test_installation import ISSUER, LOG, run
from tests.app.hsm.tokens.test_token_keys import writing
from tests.app.keys.test_issuer import certified, verdict
from tests.app.keys.test_log_key import DiedError, die, dies_after, ids, signers, trust
from tests.installation import Installation, install


@pytest.fixture
def in_token(settings: Settings) -> Iterator[Installation]:
    """An installation whose keys are in the token, and whose small model is fitted."""
    init_log(settings, log_at=parse_uri(LOG), issuer_at=parse_uri(ISSUER)).engine.dispose()
    with install(settings) as made:
        made.ready()
        yield made


def named(settings: Settings, name: str) -> str:
    """Return what a key file names, nothing if it has the key itself."""
    text = (settings.keys_dir / name).read_text().strip()
    return text if text.startswith("pkcs11:") else ""


def dies_at_rotation(tx: Transaction, event: str, change: KeyChange) -> int:
    if event == ROTATED:
        raise DiedError
    return record_service_key_event(tx, event, change)


def test_both_keys_are_replaced_within_the_token(in_token: Installation) -> None:
    settings, ledger = in_token.settings, in_token.services.ledger
    old = ledger.verifier
    before = certified(in_token, "r1")
    told = run(service_key, "rotate", "issuer")
    assert told.exit_code == 0, told.output
    assert f"still in its token: destroy {ISSUER} there" in told.output
    assert named(settings, ISSUER_KEY) == f"{ISSUER}-2"
    assert run(service_key, "rotate", "log").exit_code == 0
    assert named(settings, NEXT_KEY) == f"{LOG}-2"
    within = certified(in_token, "r2")
    assert len(signers(ledger)) == 2
    told = run(service_key, "revoke", "log")
    assert told.exit_code == 0, told.output
    assert f"destroy {LOG} there" in told.output
    assert named(settings, LOG_KEY) == f"{LOG}-2"
    after = certified(in_token, "r3")
    assert signers(ledger) == ids(ledger.verifier) != ids(old)
    root = parse_trust_root(trust(in_token), old)
    for data in (before, within, after):
        assert verdict(data, root).result == "PASS", verdict(data, root).failed
    rotate_log(settings, ledger)
    assert named(settings, NEXT_KEY) == f"{LOG}-3"
    assert in_token.caller.http.get("/readyz").status_code == 200
    in_token.check()


def test_into_the_token_and_out_of_it(settings: Settings, hsm: SoftHsm) -> None:
    hsm.add_token("second")
    init_log(settings).engine.dispose()
    with install(settings) as made:
        made.ready()
        ledger = made.services.ledger
        for place in (LOG, "pkcs11:token=second;object=log", "file"):
            rotate_log(settings, ledger, to=place)
            certified(made, f"r{len(ledger.keys.verifiers)}")
            revoke_log(settings, ledger, "superseded")
            assert named(settings, LOG_KEY) == place.replace("file", "")
        for place in (ISSUER, "file"):
            rotate_issuer(settings, ledger, to=place)
            assert named(settings, ISSUER_KEY) == place.replace("file", "")
        certified(made, "r9")
        load_ledger(settings, made.services.engine)
        made.check()


@pytest.mark.parametrize("crash", ["pair", "file", "entry"])
def test_a_killed_rotation_goes_on(
    in_token: Installation, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    settings, ledger = in_token.settings, in_token.services.ledger
    for record, rotate, name in (
        ("r1", rotate_log, NEXT_KEY),
        ("r2", rotate_issuer, ISSUER_NEXT),
    ):
        with monkeypatch.context() as patch:
            if crash == "pair":
                patch.setattr(key_files, "write_durably", die)
            elif crash == "file":
                for module in (rotate_module, rotate_log_module):
                    patch.setattr(module, "record_service_key_event", dies_at_rotation)
            else:
                dies_after(patch, ledger)
            with pytest.raises(DiedError):
                rotate(settings, ledger)
        assert (settings.keys_dir / name).exists() is (crash != "pair")
        place = parse_uri(f"{LOG if name == NEXT_KEY else ISSUER}-2")
        made = open_key(settings, place).public_key()  # what the dead process left in the token
        certified(in_token, record)
        rotate(settings, ledger)
        if name == NEXT_KEY:
            assert ledger.keys.verifiers[-1].key == made
            assert len(ledger.keys.verifiers) == 2
        else:
            assert signing_issuer(settings, ledger)[0].public_key() == made
    certified(in_token, "r3")
    in_token.check()


def in_use(settings: Settings, in_token: Installation) -> tuple[object, object]:
    """Return the public halves of the newest keys of log and issuer."""
    issuer, _, _ = signing_issuer(settings, in_token.services.ledger)
    return in_token.services.ledger.keys.verifiers[-1].key, issuer.public_key()


def test_a_pair_that_somebody_may_know_does_not_follow(
    in_token: Installation, hsm: SoftHsm
) -> None:
    """Who had the PIN once must not know the key that a rotation after that announces."""
    settings, ledger = in_token.settings, in_token.services.ledger
    before = in_use(settings, in_token)
    hsm.add_key(generate_key("ed25519"), "log-2", id="71")
    hsm.add_key(generate_key("ecdsa-p256-sha256"), "issuer-2", id="72")
    for rotate in (rotate_log, rotate_issuer):
        with pytest.raises(HsmError, match=r"somebody may know it: destroy it"):
            rotate(settings, ledger)
    assert in_use(settings, in_token) == before
    for label in ("log-3", "issuer-3"):  # generated in the token, and made to be copied
        leave_extractable(settings, label)
    for rotate, label in ((rotate_log, f"{LOG}-3"), (rotate_issuer, f"{ISSUER}-3")):
        with pytest.raises(HsmError, match=r"somebody may know it: destroy it"):
            rotate(settings, ledger, to=label)
    assert in_use(settings, in_token) == before
    in_token.check()


def leave_extractable(settings: Settings, label: str) -> None:
    kind, curve = (
        (KeyType.EC_EDWARDS, ED25519) if label.startswith("log") else (KeyType.EC, P256)
    )
    with writing(settings) as session:
        parameters = session.create_domain_parameters(
            kind, {Attribute.EC_PARAMS: curve}, local=True
        )
        parameters.generate_keypair(
            id=label.encode(),
            label=label,
            store=True,
            capabilities=MechanismFlag.SIGN | MechanismFlag.VERIFY,
            private_template={Attribute.EXTRACTABLE: True},
        )


def test_a_public_half_of_another_key_is_not_announced(
    in_token: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a private half that a crash left in the token, somebody puts their own public one."""
    settings, ledger = in_token.settings, in_token.services.ledger
    before = in_use(settings, in_token)
    with monkeypatch.context() as patch:
        patch.setattr(key_files, "write_durably", die)
        for rotate in (rotate_log, rotate_issuer):
            with pytest.raises(DiedError):
                rotate(settings, ledger)
    for other in ("log-theirs", "issuer-theirs"):
        leave_extractable(settings, other)
    with writing(settings) as session:
        for label, other in (("log-2", "log-theirs"), ("issuer-2", "issuer-theirs")):
            wanted = {Attribute.CLASS: ObjectClass.PUBLIC_KEY, Attribute.LABEL: label}
            (left,) = session.get_objects(wanted)
            (theirs,) = session.get_objects({**wanted, Attribute.LABEL: other})
            left.destroy()
            theirs[Attribute.LABEL] = label
    for rotate in (rotate_log, rotate_issuer):
        with pytest.raises(HsmError, match=r"another key than that of the public half"):
            rotate(settings, ledger)
    assert in_use(settings, in_token) == before
    in_token.check()


def test_a_key_is_not_its_own_successor(in_token: Installation) -> None:
    settings, ledger = in_token.settings, in_token.services.ledger
    for rotate, own, name in (
        (rotate_log, LOG, NEXT_KEY),
        (rotate_issuer, ISSUER, ISSUER_NEXT),
    ):
        with pytest.raises(KeyPlaceError, match=r"names the key .* already"):
            rotate(settings, ledger, to=own)
        assert not (settings.keys_dir / name).exists()


def test_a_key_that_was_put_in_the_file_does_not_follow_that_of_the_token(
    in_token: Installation,
) -> None:
    settings, ledger = in_token.settings, in_token.services.ledger
    (settings.keys_dir / NEXT_KEY).write_text(private_pem(generate_key("ed25519")))
    rotate_log(settings, ledger)
    assert named(settings, NEXT_KEY) == f"{LOG}-2"
    planted = private_pem(generate_key("ecdsa-p256-sha256"))
    (settings.keys_dir / ISSUER_NEXT).write_text(planted)
    rotate_issuer(settings, ledger)
    assert named(settings, ISSUER_KEY) == f"{ISSUER}-2"
