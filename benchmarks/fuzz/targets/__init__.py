"""The parsers that are fuzzed, by name."""

from benchmarks.fuzz.target import Target
from benchmarks.fuzz.targets import (
    arrays,
    certificates,
    log,
    models,
    rounds,
    service,
    verifiers,
    wire,
)

TARGETS: dict[str, Target] = {
    one.name: one
    for one in (
        *log.TARGETS,
        *certificates.TARGETS,
        *wire.TARGETS,
        *service.TARGETS,
        *arrays.TARGETS,
        *models.TARGETS,
        *rounds.TARGETS,
        *verifiers.TARGETS,
    )
}
