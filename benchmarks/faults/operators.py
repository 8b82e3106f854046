"""What operators do: commands of `lethe`, each as an operator repeats it after an error."""

import json
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.backup.archive import ARTIFACTS, read_manifest, write_backup
from app.backup.beats import Beat, write_beat
from app.backup.check import fsck_installation
from app.backup.errors import BackupError
from app.backup.follower import following
from app.backup.pieces import as_backup
from app.backup.reapply import WHY, log_people, log_quarantines, unlogged
from app.backup.recovery import recover_entries
from app.backup.restore import restore
from app.keys.log import logged_keys
from app.keys.master import master_keys
from app.keys.rotate import rotate_issuer
from app.keys.rotate_log import revoke_log, rotate_log
from app.keys.rotate_master import revoke_master, rotate_master
from app.ledger.sequencer import LogExistsError
from app.ledger.startup import create_ml_dsa, init_log, open_ledger
from app.problems import ConflictError
from app.reconcile.fsck.state import Verified, write_state
from app.reconcile.journal import RESTORED
from app.service.access.rotate_silo import revoke_silo, rotate_silo
from app.service.queue import MEND
from app.settings import Settings
from app.vault.master import RootSecret
from benchmarks.faults.auditors import served
from benchmarks.faults.clients import answered, register
from benchmarks.faults.workload import StuckError, Told, tried
from lethe.files import PARTIAL
from lethe.log.follow import mirror_log
from migrations.runner import upgrade
from models import Job, Model
from models.database.session import opened_engine, reading
from models.database.types import utcnow
from tests import small_network
from tests.installation import Installation
from tests.small import MODEL, pack
from workers.jobs.sweep import clean_again
from workers.silos import keys as silo_keys

# Below the data folder: what commands read and write lies there, so that faults strike it.
FOLLOWED, COPIED, OLD, MIRROR = "followed", "followed-keys", "old", "mirror"
ORPHAN = "00000000-0000-4000-8000-000000000000"  # a file that a crash left
STATE = "fsck.state"
SILO = 0


def scratch(made: Installation, name: str) -> Settings:
    """Return the settings of another installation of this log, in a folder that is new."""
    number = sum(1 for _ in made.settings.data_dir.glob(f"{name}-*"))
    return elsewhere(made.settings, made.settings.data_dir / f"{name}-{number}")


def elsewhere(settings: Settings, folder: Path) -> Settings:
    """Return the settings of another installation of this log, on SQLite in `folder`."""
    return settings.model_copy(update={"data_dir": folder, "database_url": ""})


def rotate(made: Installation, told: Told) -> None:
    """Replace the issuer's key."""

    def once() -> None:
        with suppress(ConflictError):  # it was finished before the fault
            rotate_issuer(made.settings, made.services.ledger, "issuer-2")

    tried(once)
    told("rotated", "issuer-2")


def replace_log_key(made: Installation, told: Told) -> None:
    """Replace the log's key: both sign, then the older one is revoked."""
    settings, ledger = made.settings, made.services.ledger

    def once() -> None:
        known = logged_keys(ledger).keys
        if len(known) == 1 or known[-2].revoked is None:
            with suppress(ConflictError):  # two keys sign already
                rotate_log(settings, ledger)
        with suppress(ConflictError):  # one signs alone: it was finished before the fault
            revoke_log(settings, ledger, "superseded")

    tried(once)
    told("log-rotated", None)


def replace_master_key(made: Installation, told: Told) -> None:
    """Replace the master key: either opens everything, then the older one nothing."""
    begin_master_key(made)
    end_master_key(made)
    told("master-rotated", None)


def begin_master_key(made: Installation) -> None:
    """Have a second master key open everything, unless one was replaced before."""

    def once() -> None:
        if not any(one.revoked for one in master_keys(made.services.ledger).keys):
            with suppress(ConflictError):  # two are in use already
                rotate_master(made.settings, made.services.ledger)

    tried(once)


def end_master_key(made: Installation) -> None:
    """Have the older master key open nothing any more."""

    def once() -> None:
        with suppress(ConflictError):  # it was finished before the fault
            revoke_master(made.settings, made.services.ledger, "superseded")

    tried(once)


def network_on_silos(made: Installation) -> None:
    """Register a network whose rows two silos have, and their keys."""
    for silo in range(made.settings.silos):
        silo_keys.register(made.settings, silo)
    manifest = {"manifest": json.dumps(small_network.manifest())}
    files = {"data": ("rows.npz", pack(small_network.rows()))}
    answer = made.caller.operator("POST", "/v1/models", files=files, data=manifest)
    assert answer.status_code == 201, answer.text


def replace_silo_key(made: Installation, told: Told) -> None:
    """Replace a silo's key: both count, then the older one does not."""
    settings, ledger = made.settings, made.services.ledger

    def once() -> str | None:
        digest = None
        with suppress(ConflictError):  # two count already
            digest = rotate_silo(settings, ledger, SILO)
        with suppress(ConflictError):  # one counts alone
            revoke_silo(settings, ledger, SILO)
        silo_keys.register(settings, SILO)  # the silo's worker starts again
        return digest

    if (digest := tried(once)) is not None:
        told("silo-rotated", digest)


def backup(made: Installation, told: Told) -> None:
    """Write a backup of one moment, of database and keys; a copied file is destroyed before."""
    orphan = made.settings.data_dir / ARTIFACTS / str(uuid.uuid4())

    def destroyed(engine: Engine) -> Engine:
        orphan.unlink(missing_ok=True)
        return reading(engine)

    def once() -> Path:
        number = sum(1 for _ in made.settings.data_dir.glob("backup-*"))
        folder = made.settings.data_dir / f"backup-{number}"
        orphan.write_bytes(b"of a transaction that was rolled back")
        with patch("app.backup.archive.reading", destroyed):
            write_backup(made.settings, made.services.engine, folder, Path(f"{folder}-keys"))
        return folder

    told("backup", tried(once).name)


def half_followed(made: Installation) -> None:
    """Begin a rotation of the master key, and leave what killed commands leave."""
    begin_master_key(made)
    follow_once(made)
    (made.settings.data_dir / FOLLOWED / f"{PARTIAL}left").touch()
    (made.settings.keys_dir / f"{PARTIAL}left").touch()  # of a rotation


def follow(made: Installation, told: Told) -> None:
    """Follow the database: first a new file, then the end of a rotation, which changes keys."""
    register(made, told)
    tried(lambda: follow_once(made))
    end_master_key(made)
    tried(lambda: follow_once(made))
    told("followed", FOLLOWED)


def follow_once(made: Installation) -> None:
    """Bring the directory that follows the database up to it, and say so."""
    settings, folder = made.settings, made.settings.data_dir / FOLLOWED
    keys = settings.data_dir / COPIED
    with following(settings, made.services.engine, folder, keys) as follower:
        at = utcnow()
        follower.run()
        write_beat(settings, Beat(str(folder), at.isoformat(), 1.0))


def unfollowed(settings: Settings) -> str | None:
    """Return why what a follower left is no backup: whenever it is killed, it is one."""
    try:
        with as_backup(settings.data_dir / FOLLOWED, settings.data_dir) as whole:
            read_manifest(whole)
    except BackupError as error:
        return f"the followed backup: {error.detail}"
    return None


def backed_up(made: Installation) -> None:
    """Have a backup with keys, one request that came after it, and a mirror of the log."""
    settings = made.settings
    if made.services.engine.dialect.name == "sqlite":
        follow_once(made)
    else:
        folder = settings.data_dir / FOLLOWED
        write_backup(settings, made.services.engine, folder, settings.data_dir / COPIED)
    assert made.caller.erase_records("r1").status_code == 202

    mirror_log(served(made), made.services.ledger.verifier, settings.data_dir / MIRROR)


def restored(made: Installation, told: Told) -> None:
    """Restore backup and keys into a new place, and the log's later entries from a mirror."""
    data = made.settings.data_dir

    def once() -> Path:
        own = scratch(made, "restored")
        with opened_engine(own.resolved_database_url) as engine:
            restore(own, engine, data / FOLLOWED, data / COPIED)
            ledger, done = recover_entries(own, engine, [str(data / MIRROR)])
            log_quarantines(ledger, unlogged(engine))
            log_people(ledger, RootSecret.load(own), done.result.people)
            (own.keys_dir / RESTORED).unlink(missing_ok=True)
        return own.data_dir

    told("restored", tried(once).name)


def begin(made: Installation, told: Told) -> None:
    """Begin another log in an empty place, and give it its second key."""
    own = elsewhere(made.settings, made.settings.data_dir / "begun")

    def once() -> None:
        own.data_dir.mkdir(exist_ok=True)
        with opened_engine(own.resolved_database_url) as engine:
            upgrade(engine)
            with suppress(LogExistsError):  # it was finished before the fault
                init_log(own, engine)
        create_ml_dsa(own)

    tried(once)
    told("begun", own.data_dir.name)


def fsck(made: Installation, told: Told) -> None:
    """Check the log, and keep what was verified."""
    state = made.settings.data_dir / STATE

    def once() -> None:
        ledger = open_ledger(made.settings, made.services.engine, examine=True)
        begun, report = utcnow(), fsck_installation(made.settings, ledger)
        if not report.ok or report.edge is None or ledger.entry_key is None:
            raise StuckError(f"fsck finds {report.findings}")
        write_state(state, ledger.entry_key, Verified(*report.edge, begun, report.files))

    tried(once)
    told("checked", STATE)


def quarantined(made: Installation) -> None:
    """Take the model out of service, as a restore does."""
    with Session(made.services.engine) as session:
        model = session.exec(select(Model).where(Model.ref == MODEL)).one()
        model.state, model.failure = "quarantined", WHY
        session.commit()
    log_quarantines(made.services.ledger, [MODEL])


def mend(made: Installation, told: Told) -> None:
    """Have the model rebuilt from its rows and returned to service."""
    path = f"/v1/models/{MODEL}/mend"
    # It is in service again if it was mended before the fault.
    answered(lambda: made.caller.operator("POST", path), 202, 409)
    told("mended", MODEL)


def is_mended(session: Session) -> bool:
    """Return whether the model is in service, and no job to mend it is left."""
    state = session.exec(select(Model.state).where(Model.ref == MODEL)).one()
    left = select(Job.id).where(Job.kind == MEND, col(Job.done_at).is_(None))
    return state == "ready" and session.exec(left).first() is None


def orphaned(made: Installation) -> None:
    """Leave a file without a row, as a crash does."""
    (made.settings.data_dir / "artifacts" / ORPHAN).write_bytes(b"?")


def tidy(made: Installation, told: Told) -> None:
    """Remove what crashes left, as each sweep does to old files; end an upgrade."""
    services, keys = made.services, made.settings.keys_dir
    tried(lambda: clean_again(services, timedelta(0)))
    tried(lambda: services.features.name_owners(services.engine, keys))
    told("tidied", ORPHAN)
