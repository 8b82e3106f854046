"""Who trains networks: workers with a GPU, or silos."""

from typing import Self

from pydantic import Field, model_validator

from app.settings.group import SettingsGroup

MOST_SILOS = 1000  # each is a queue


class SiloSettings(SettingsGroup):
    """The queue of GPUs, and the silos of federated rounds."""

    gpu_queue: bool = Field(
        default=False,
        description="Send jobs that train networks only to workers of the queue gpu.",
    )
    silos: int = Field(
        default=0,
        ge=0,
        le=MOST_SILOS,
        description="Silos that federated rounds are sent to; 0: the worker trains by itself.",
    )
    round_timeout_seconds: int = Field(
        default=600,
        gt=0,
        le=43_200,
        description="Longest wait for silos in a round of a training without its own time-out.",
    )
    silo_key_dir: str = Field(
        default="",
        description="Directory of silos' private keys, for their workers; empty: keys/.",
    )

    @model_validator(mode="after")
    def _refuse_silos_on_gpus(self) -> Self:
        if self.gpu_queue and self.silos:
            raise ValueError(
                "LETHE_GPU_QUEUE and LETHE_SILOS are both set, but silos train on their own "
                "processors: unset one of them for all processes"
            )
        return self
