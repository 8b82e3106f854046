"""Opens this installation's log: its keys, its database and the guard.

<data_dir>/keys/  log.key     Ed25519, signs checkpoints      log.vkey    its public half
                  issuer.key  ECDSA P-256, certificates       issuer.pem  its public half
                  master.key  opens root.sealed, the root secret of all sealed data
                  log.guard.json
                  log-mldsa.key  ML-DSA-44, signs checkpoints too        log-mldsa.vkey
                  log-mldsa.made  a MAC of the key that the command created
                  log-mldsa.next.key and so on, as for log.key, during its rotation
                  entries.key authenticates stored log entries (`app.ledger.entry_macs`),
                              keys and tokens (`app.ledger.key_rows`)
                  revoked.list  tags of revoked keys and tokens
                  erased.journal  tags of erased data
                  owners.named  empty: rows are sealed for their owners (`app.vault.features`)
                  log.next.key, log.next.vkey, log.previous.vkeys, log.KEYID.announced.json
                  issuer.next.key, during a rotation of the issuer's key
                  opendsr.key, opendsr.pem  supplied by the operator, for
                              `app.protocols.opendsr`

The log's and the issuer's key files may name a key in an HSM or in the environment instead
(`app.ledger.key_files`).
"""

from collections.abc import Collection
from contextlib import suppress
from hmac import compare_digest, digest
from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from app.ledger import storage
from app.ledger.entry_macs import EntryKey, KeyMissingError, new_entry_key, parse_entry_key
from app.ledger.guard import SigningGuard
from app.ledger.key_files import (
    KeyPlace,
    KeyPlaceError,
    ensure_key,
    is_ed25519,
    is_p256,
)
from app.ledger.key_rows import FILE as REVOKED
from app.ledger.key_rows import KeyRows, authenticate_rows
from app.ledger.log_files import (
    LOG_KEY,
    LOG_VKEY,
    ML_DSA_KEY,
    ML_DSA_VKEY,
    SignerFiles,
    load_ml_dsa,
    make_ml_dsa,
    read_present,
)
from app.ledger.sequencer import Ledger, LogExistsError
from app.settings import Settings
from app.vault import master
from app.vault.errors import MasterKeyError
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import JournalError
from app.vault.master import RootSecret
from app.vault.root import FILE as ROOT
from app.vault.root import create_root
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.log.checkpoint import sign_checkpoint
from lethe.log.cosigner import Cosigner
from lethe.log.note import NoteError, NoteSigner, NoteVerifier, read_note
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import P256Key, public_pem
from migrations import HEAD
from models.database.session import make_engine, reading
from models.database.types import seal_columns

GUARD = "log.guard.json"
ENTRIES_KEY = "entries.key"
ISSUER_KEY, ISSUER_PEM = "issuer.key", "issuer.pem"
ML_DSA_MADE = "log-mldsa.made"
RESTORED = "restored"  # marks keys from a backup: what was signed since is unknown


class UnreachableDatabaseError(LetheError):
    """No connection to the database."""

    slug, title, status = "database-unreachable", "The database does not answer", 503


class SchemaError(LetheError):
    """The database's schema is not the one that this version of Lethe needs."""

    slug, title, status = "schema", "The database needs migrating", 503


def init_log(
    settings: Settings,
    engine: Engine | None = None,
    *,
    log_at: KeyPlace | None = None,
    issuer_at: KeyPlace | None = None,
    ml_dsa: bool = False,
) -> Ledger:
    """Create missing keys and begin the log; only ever on an explicit command.

    log_at, issuer_at: the places of these keys; by default, keys are in files. ml_dsa: create
    the log's second key too, so that the first checkpoint has a line of it.

    Raises:
        LogExistsError: The database holds a log already.
        GuardExistsError: The log key has signed a log already.
        SchemaError: The database is not migrated.
        JournalError: As `require_recovered`.
        KeyPlaceError, KeyAwayError: As `ensure_key`.
    """
    engine = engine or make_engine(settings.resolved_database_url)
    require_schema(engine)
    require_recovered(settings.keys_dir)
    with Session(reading(engine)) as session:
        if storage.latest_checkpoint(session):  # new keys would only hide that the old are lost
            raise LogExistsError(
                "the database already holds a log, and keeps it: for another log, set "
                "LETHE_DATABASE_URL to an empty database"
            )
    create_keys(settings, log_at, issuer_at)
    if ml_dsa:
        create_ml_dsa(settings)
    ledger = open_ledger(settings, engine)
    ledger.begin()
    return ledger


def load_ledger(settings: Settings, engine: Engine | None = None) -> Ledger:
    """Open the log, check it against key and guard, and publish entries left by a crash.

    Raises:
        LogMissingError: No log was begun.
        GuardError: The log is not the signed one; the message names the remedy.
        KeyMissingError: The log's key or entries.key is missing or not a key.
        SchemaError: The database is not migrated.
        JournalError: As `require_recovered`.
    """
    engine = engine or make_engine(settings.resolved_database_url)
    require_schema(engine)
    require_recovered(settings.keys_dir)
    ledger = open_ledger(settings, engine)
    ledger.start()
    return ledger


def open_ledger(settings: Settings, engine: Engine, *, examine: bool = False) -> Ledger:
    """Return the ledger unchecked, to begin, examine or recover a log.

    Args:
        settings: The location of the keys.
        engine: The log's database.
        examine: Also open a log whose entries.key is missing; nothing can be appended then.

    Raises:
        KeyMissingError: The log key is missing or not an Ed25519 key, entries.key is
            missing or not a key, or the list of revocations is missing.
    """
    signers = SignerFiles(settings)
    with suppress(MasterKeyError):  # code that needs the secret gets the error from `load`
        seal_columns(engine, RootSecret.load(settings))
    guard = SigningGuard(settings.keys_dir / GUARD)
    missing = not (settings.keys_dir / ENTRIES_KEY).exists()
    entry_key = None if examine and missing else load_entry_key(settings)
    if entry_key is not None:
        rows = KeyRows(entry_key, settings.keys_dir / REVOKED)
        rows.revoked()
        authenticate_rows(engine, rows)
    return Ledger(engine, signers, guard, entry_key)


def last_signed(settings: Settings, keys: Path) -> tuple[str, str]:
    """Return the verifier key and the last signed note of the log with these keys.

    The note is signed again with exactly the same text, which forks nothing.
    settings: for access to a key in an HSM.

    Raises KeyMissingError: the log key is missing or not an Ed25519 key; GuardError: the guard
    is missing or damaged.
    """
    key = read_present(settings, keys / LOG_KEY)
    if not is_ed25519(key):
        raise KeyMissingError(f"{LOG_KEY} is not an Ed25519 key: restore the keys directory")
    last = SigningGuard(keys / GUARD).read()
    signer = NoteSigner(last.origin, key)
    return signer.verifier.vkey, sign_checkpoint(last, signer)


def load_issuer(settings: Settings) -> tuple[P256Key, str]:
    """Return the key that signs certificates, and its key id.

    Raises KeyMissingError: it is missing, unreachable, or not an ECDSA P-256 key.
    """
    key = read_present(settings, settings.keys_dir / ISSUER_KEY)
    if not is_p256(key):
        raise KeyMissingError(f"{ISSUER_KEY} is not an ECDSA P-256 key: restore it")
    return key, settings.issuer_keyid


def load_entry_key(settings: Settings) -> EntryKey:
    """Return the key that authenticates the log's stored entries.

    Raises KeyMissingError: it is missing or not a key.
    """
    path = settings.keys_dir / ENTRIES_KEY
    try:
        return parse_entry_key(path.read_bytes(), settings.origin)
    except FileNotFoundError:
        raise KeyMissingError(
            f"{path} is missing: restore it from the backup of the keys directory; no other "
            "key fits the entries of this log. For a new installation, run `lethe log init`"
        ) from None
    except ValueError:
        raise KeyMissingError(
            f"{path} is not a key that `lethe log init` wrote: restore it from the backup of "
            "the keys directory"
        ) from None


def create_keys(
    settings: Settings, log_at: KeyPlace | None = None, issuer_at: KeyPlace | None = None
) -> None:
    """Create the missing keys, readable by their owner only; keep the others.

    Raises KeyMissingError, MasterKeyError: an existing key does not match its file's name, or
    the configured master key does not open root.sealed; KeyPlaceError, KeyAwayError: as
    `ensure_key`.
    """
    folder = settings.keys_dir
    settings.made_data_dir()
    folder.mkdir(mode=0o700, exist_ok=True)
    if not settings.master_key.get_secret_value():
        with suppress(FileExistsError):
            master.create_key(folder / master.FILE)
    create_root(folder, master.given(settings))  # before log.key: `adopt_root` relies on it
    try:
        RootSecret.load(settings)  # else the log would begin with data that nothing can open
    except MasterKeyError as error:
        raise MasterKeyError(
            f"{error.detail}. Or, if no log was begun with these keys, remove "
            f"{folder / ROOT} and run `lethe log init` again"
        ) from None
    try:
        log_key = ensure_key(settings, folder / LOG_KEY, "ed25519", log_at)
        issuer = ensure_key(settings, folder / ISSUER_KEY, "ecdsa-p256-sha256", issuer_at)
    except KeyFormatError as error:
        raise KeyMissingError(f"a key in {folder}: {error.detail}") from None
    if is_ed25519(log_key):  # `open_ledger` refuses any other
        vkey = NoteSigner(settings.origin, log_key).verifier.vkey + "\n"
        write_durably(folder / LOG_VKEY, vkey.encode(), mode=0o644)
    pem = public_pem(issuer.public_key()).encode()
    write_durably(folder / ISSUER_PEM, pem, mode=0o644)
    for name, content in ((ENTRIES_KEY, new_entry_key()), (JOURNAL, b""), (REVOKED, b"")):
        with suppress(FileExistsError):
            write_durably(folder / name, content, replace=False)


def create_ml_dsa(
    settings: Settings, named: Collection[NoteVerifier] = (), note: str = ""
) -> Cosigner:
    """Create the log's ML-DSA-44 key, or return the existing one if it is the log's.

    An existing key is the log's if this function created it or the log names it. Any other key
    that has signed nothing is replaced, since whoever planted it knows it. A created key has a
    MAC under entries.key beside it: an attacker who plants a key could also plant its verifier
    key or its line on a checkpoint.

    named: the log's second keys, as its entries have them. note: its latest checkpoint.

    Raises:
        KeyMissingError: As `load_ml_dsa` and `load_entry_key`; or the log names other keys.
        KeyPlaceError: Another key signs checkpoints already.
    """
    folder = settings.keys_dir
    key = load_entry_key(settings).derive("lethe log-mldsa.made 1")

    def mac(one: Cosigner) -> bytes:
        return digest(key, one.verifier.vkey.encode(), "sha256").hex().encode() + b"\n"

    made, found = folder / ML_DSA_MADE, load_ml_dsa(settings)
    if named and (found is None or found.verifier not in named):
        raise KeyMissingError(
            f"{ML_DSA_KEY} is not a key that the log names: restore the newest backup of the "
            "keys directory"
        )
    known = found is not None and (
        found.verifier in named
        or (made.is_file() and compare_digest(made.read_bytes(), mac(found)))
    )
    if found is not None and not known and _has_line(note, found.verifier):
        raise KeyPlaceError(
            f"{ML_DSA_KEY} signs checkpoints, and this installation did not make it: compare "
            f"{found.verifier.vkey} with what you published. If it is another, stop all "
            f"processes, remove {ML_DSA_KEY} and {ML_DSA_VKEY}, and run this again"
        )
    if found is None or not known:
        found = make_ml_dsa(settings, ML_DSA_KEY)
        write_durably(made, mac(found))
    # Write this last: a published key is never replaced by a rerun after a crash.
    write_durably(folder / ML_DSA_VKEY, f"{found.verifier.vkey}\n".encode(), mode=0o644)
    return found


def require_recovered(keys: Path) -> None:
    """Check that these keys are not from a backup, unless `lethe log recover` has run since.

    A backup's guard may be older than the last signed checkpoint: the next entry would then
    take the index of an entry for which somebody already has a receipt. Raises JournalError:
    the keys came from a backup and the log was not recovered.
    """
    if (keys / RESTORED).exists():
        raise JournalError(
            "the keys came from a backup, and nothing here tells what was signed since: run "
            "`lethe log recover` with a mirror of the log, or with --no-mirror if there is none"
        )


def require_schema(engine: Engine) -> None:
    """Check that the database has the schema that this version of the code needs.

    Raises SchemaError: it has another; UnreachableDatabaseError: the database does not answer.
    """
    found = None
    try:
        with reading(engine).connect() as connection:
            if inspect(connection).has_table("alembic_version"):
                query = text("SELECT version_num FROM alembic_version")
                found = connection.execute(query).scalar_one_or_none()
    except OperationalError:  # not chained: its text may repeat the URL's user and host
        raise UnreachableDatabaseError(
            "the database does not answer: check LETHE_DATABASE_URL, or run `lethe migrate` "
            "to create a SQLite file"
        ) from None
    if found is None or found < HEAD:
        raise SchemaError("the database is not migrated: run `lethe migrate`")
    if found != HEAD:
        raise SchemaError("the database was migrated by a newer Lethe: upgrade this one")


def _has_line(note: str, verifier: NoteVerifier) -> bool:
    """Return whether a checkpoint has a key's signature."""
    try:
        return verifier in read_note(note, [verifier]).verified
    except NoteError:
        return False
