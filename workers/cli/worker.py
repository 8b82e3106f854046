"""`lethe worker`: a Celery worker, with the schedule beside it if requested."""

import gc
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import click

from app.heaps import share_heaps

if TYPE_CHECKING:
    from celery.apps.worker import Worker

    from app.settings import Settings

# As in app.settings.jobs; numerical libraries load later.
DEVICES = ("auto", "cpu", "cuda", "torch-cpu")


@click.command()
@click.option(
    "--beat", is_flag=True, help="Also run the schedule; of several processes one is elected."
)
@click.option("--until-eof", is_flag=True, help="Stop when standard input closes.")
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="Device for sums and training. Default: LETHE_DEVICE, else auto.",
)
@click.option(
    "--queue",
    "queues",
    type=click.Choice(("cpu", "gpu")),
    multiple=True,
    help="Take the jobs of this queue; repeatable. Default: cpu. gpu: see LETHE_GPU_QUEUE.",
)
@click.option(
    "--silo",
    "silos",
    type=click.IntRange(min=0),
    multiple=True,
    help="Serve only as this silo; repeatable.",
)
def worker(
    beat: bool,
    until_eof: bool,
    device: str | None,
    queues: tuple[str, ...],
    silos: tuple[int, ...],
) -> None:
    """Execute, verify and certify requests, configured by the environment (LETHE_*)."""
    share_heaps()
    # Imports create half a million objects and no garbage: collecting takes a tenth of the
    # start.
    gc.disable()
    from celery.beat import EmbeddedService
    from celery.signals import setup_logging, worker_init

    from app import logs, metrics, traces
    from app.counters import STAGE_ERRORS, STAGES
    from app.dispatch import QUEUE, silo_queue
    from app.notices.sender import Sender
    from app.protocols.forms import FORMS
    from app.service.access.silo_keys import renew
    from app.settings import Settings
    from app.witnesses.gather import Gatherer
    from workers import celery_app, devices, runtime
    from workers.celery_app import app
    from workers.schedule import election

    settings = Settings()
    logs.configure(settings)
    traces.configure(settings, "lethe-worker")
    # Without a listener on this signal, Celery adds its own handlers.
    setup_logging.connect(lambda **_: None, weak=False)
    services = runtime.services()  # a missing log or key is reported now, not at the first task
    _check(services.settings, silos, queues)
    if silos:
        _prepare(silos, services.settings, device)
        renew(services, silos)
        runtime.become(silos)
    runtime.serve(queues or (QUEUE,))
    devices.choose("cpu" if silos else device or services.settings.device)
    gc.freeze()  # permanent objects: exempt them from later collections
    gc.enable()
    if settings.worker_metrics and not silos:
        for counted in (STAGES, STAGE_ERRORS):
            counted.expect(celery_app.STAGES)
        metrics.serve_own(settings.worker_metrics)
    if not silos:
        Sender(services, FORMS).start()
    if until_eof:
        threading.Thread(target=end_with_parent, daemon=True).start()
    if beat and services.policy is not None:
        Gatherer(services.ledger, services.policy, services.settings).start(election().leads)
    if beat:
        # A thread, not `celery -B`, whose child process would survive a killed worker. Without
        # this explicit choice Celery uses its own scheduler class, which writes a file here.
        scheduler = app.conf.beat_scheduler
        EmbeddedService(app, max_interval=1, thread=True, scheduler_cls=scheduler).start()
    # Solo: a fork would inherit BLAS threads, database connections and CUDA contexts.
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    served = map(silo_queue, sorted(set(silos))) if silos else sorted(set(queues) or {QUEUE})
    started: list[Worker] = []
    worker_init.connect(lambda sender, **_: started.append(sender), weak=False)
    app.worker_main(
        [
            "--quiet",
            "worker",
            "--pool",
            "solo",
            "--loglevel",
            "WARNING",
            "--queues",
            ",".join(served),
            *quiet,
        ]
    )
    if any(map(_failed, started)):
        # Celery logs the error and returns. Status 0 would tell a supervisor that all is well.
        raise SystemExit(1)


def _failed(ended: "Worker") -> bool:
    """Return whether a worker ended by an error, not by a signal."""
    from celery.worker import state

    signalled = state.should_stop is not None or state.should_terminate is not None
    return bool(ended.exitcode) and not signalled


def _check(settings: "Settings", silos: tuple[int, ...], queues: tuple[str, ...]) -> None:
    if silos and queues:
        raise click.UsageError("a silo has a queue of its own: leave --queue out")
    if "gpu" in queues and not settings.gpu_queue:
        raise click.UsageError(
            "LETHE_GPU_QUEUE is not set, so nothing would ever be sent to the queue gpu: set "
            "it to true for all workers, or leave --queue gpu out"
        )


def _prepare(silos: tuple[int, ...], settings: "Settings", device: str | None) -> None:
    if device == "cuda":
        raise click.UsageError(
            "silos compute on the processor: leave --device out. To train on a GPU, leave out "
            "--silo and, for all processes, LETHE_SILOS"
        )
    # The setting applies to all processes, so this one does not refuse.
    if device is None and settings.device == "cuda":
        click.echo("LETHE_DEVICE is cuda, but silos compute on the processor", err=True)
    if max(silos) >= settings.silos:
        raise click.UsageError(
            f"LETHE_SILOS is {settings.silos}, and silos are counted from 0: nothing would "
            "ever be sent to this one. Set the same LETHE_SILOS for all processes, or leave "
            "it out"
        )
    # Now: loading torch takes seconds, which would delay the first round.
    from workers.silos import keys

    for silo in sorted(set(silos)):
        keys.register(settings, silo)


def end_with_parent() -> None:
    """End this process when its standard input ends."""
    # Not sys.stdin: this thread would hold its lock, and an interpreter that cannot acquire it
    # at exit dies with "Fatal Python error: _enter_buffered_busy".
    while os.read(sys.stdin.fileno(), 1 << 16):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
