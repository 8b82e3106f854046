"""The trainings that are measured, by name: data, network, partition, schedule, who goes."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Request = Literal["client", "typical-client", "two-clients", "half-of-one"]
Plan = Literal[
    "everything",
    "components",
    "all",
    "published",
    "tables",
    "puf",
    "pair",
    "scale",
    "backdoor",
    "masks",
]
SEEDS = 5  # that an interval should rest on
SHADOWED = (
    " (shadow models)"  # behind a setting's name: lines of the attack, not of the measures
)
SHADOWS = 4  # models; HF-KCU does not say how many


@dataclass(frozen=True, slots=True)
class Setting:
    """One federation and its training; what a seed decides is in `task`.

    rows: so many of the training rows, drawn by seed; None: all. alpha: of the Dirichlet
    partition, None: IID. The largest client goes (`client`), the one of median size
    (`typical-client`), the two largest, or half of the rows of the largest. spare: training
    rows that were not drawn are test rows, too. large: more than a CPU does in an hour for a
    seed. seeds: that the tables want.
    """

    name: str
    data: str
    about: str
    plan: Plan = "tables"
    network: str = "simple-cnn"
    shape: tuple[tuple[str, int], ...] = ()
    rows: int | None = None
    clients: int = 10
    alpha: float | None = 0.5
    rounds: int = 20
    epochs: float = 5.0
    batch: int = 32
    optimizer: Literal["sgd", "adam"] = "sgd"
    rate: float = 0.02
    decay: float = 1.0
    momentum: float = 0.9
    request: Request = "client"
    poisoned: bool = False
    spare: bool = False
    large: bool = False
    seeds: int = SEEDS

    def pinned(self) -> dict[str, Any]:
        """Return what results depend on: everything but how it is called and planned."""
        found = asdict(self)
        for name in ("name", "about", "plan", "large", "seeds"):
            del found[name]
        if not self.spare:
            del found["spare"]
        return found


DIGITS = Setting(
    name="digits",
    data="digits",
    about="400 digits, Dirichlet 0.1, SimpleCNN, 20 rounds of 5 epochs",
    plan="everything",
    rows=400,
    alpha=0.1,
    rate=0.05,
)
CIFAR = Setting(
    name="cifar",
    data="cifar10",
    about="1,000 rows of CIFAR-10, Dirichlet 0.5, SimpleCNN, 20 rounds of 5 epochs",
    plan="components",
    rows=1000,
)
CIFAR_6000 = replace(
    CIFAR,
    name="cifar-6000",
    about="6,000 rows of CIFAR-10, Dirichlet 0.5, SimpleCNN, 20 rounds of 5, a typical client",
    plan="all",
    rows=6000,
    request="typical-client",
    spare=True,
)
# HF-KCU's section 5.1; 20 rounds of 5 epochs, ten clients and Dirichlet 0.5 are the defaults.
PUBLISHED: dict[str, Any] = {
    "batch": 64, "rate": 0.01, "momentum": 0.0, "large": True, "seeds": 3,
}  # fmt: skip

_ALL = (
    replace(
        DIGITS,
        name="quick",
        about="400 rows of digits, 5 rounds of 2 epochs: for a look, not for the claims",
        plan="all",
        rounds=5,
        epochs=2.0,
    ),
    DIGITS,
    Setting(
        name="mnist",
        data="mnist",
        about="600 rows of MNIST, Dirichlet 0.1, SimpleCNN at full size, 20 rounds of 5",
        plan="all",
        rows=600,
        alpha=0.1,
    ),
    CIFAR,
    CIFAR_6000,
    replace(
        CIFAR,
        name="cifar-12000",
        about="12,000 rows of CIFAR-10, Dirichlet 0.5, SimpleCNN, 20 rounds of 5 epochs",
        plan="tables",
        rows=12_000,
        large=True,
    ),
    Setting(
        name="cifar-12000-published",
        data="cifar10",
        about="12,000 rows of CIFAR-10, HF-KCU's training: batch 64, rate 0.01, no momentum",
        plan="published",
        **PUBLISHED,
    ),
    Setting(
        name="mnist-60000-published",
        data="mnist",
        about="60,000 rows of MNIST, HF-KCU's training: batch 64, rate 0.01, no momentum",
        **PUBLISHED,
    ),
    Setting(
        name="resnet",
        data="cifar10-halved",
        about="1,000 rows of CIFAR-10 at 16 x 16, Dirichlet 0.5, ResNet-18, 15 rounds of 2",
        network="resnet18",
        rows=1000,
        rounds=15,
        epochs=2.0,
        optimizer="adam",
        rate=1e-3,
        momentum=0.0,
    ),
    Setting(
        name="resnet-full",
        data="cifar10",
        about="CIFAR-10, all rows of the file, Dirichlet 0.3, ResNet-18 with GroupNorm",
        network="resnet18",
        alpha=0.3,
        rounds=200,
        epochs=1.0,
        rate=0.1,
        decay=0.998,
        momentum=0.0,
        large=True,
    ),
    replace(DIGITS, name="iid", about="400 digits, IID", plan="tables", alpha=None),
    replace(
        DIGITS,
        name="samples",
        about="400 digits, Dirichlet 0.1, half of the largest client's rows leave",
        plan="puf",
        request="half-of-one",
    ),
    replace(
        DIGITS,
        name="samples-iid",
        about="400 digits, IID, half of the largest client's rows leave",
        plan="puf",
        request="half-of-one",
        alpha=None,
    ),
    replace(
        DIGITS,
        name="two",
        about="400 digits, Dirichlet 0.1, the two largest clients leave",
        plan="pair",
        request="two-clients",
    ),
    Setting(
        name="masks",
        data="digit-masks",
        about="ink of 300 digits, 6 clients of different contrast, Res-UNet, 20 rounds of 2",
        plan="masks",
        network="res-unet",
        shape=(("features", 8),),
        rows=300,
        clients=6,
        alpha=None,
        epochs=2.0,
        batch=16,
        optimizer="adam",
        rate=1e-3,
        momentum=0.0,
    ),
    replace(
        DIGITS,
        name="vit",
        about="400 digits, Dirichlet 0.1, a small ViT-Lite",
        plan="scale",
        network="vit-lite",
        optimizer="adam",
        rate=1e-3,
        momentum=0.0,
        shape=(("embedding", 64), ("heads", 4), ("layers", 3), ("patch", 2)),
    ),
    replace(
        DIGITS,
        name="poisoned",
        about="400 digits, IID, one client of ten poisons half of its rows towards class 7",
        plan="backdoor",
        alpha=None,
        poisoned=True,
    ),
    *(
        replace(
            DIGITS,
            name=f"alpha-{alpha:g}",
            about=f"400 digits, Dirichlet {alpha:g}, 10 clients",
            plan="scale",
            alpha=alpha,
        )
        for alpha in (0.5, 1.0)
    ),
    *(
        replace(
            DIGITS,
            name=f"clients-{clients}",
            about=f"all digits, Dirichlet 1, {clients} clients, 20 rounds of 2",
            plan="scale",
            alpha=1.0,
            rows=None,
            clients=clients,
            epochs=2.0,
        )
        for clients in (10, 100, 200)
    ),
    *(
        replace(
            CIFAR,
            name=f"cifar-alpha-{alpha:g}",
            about=f"1,000 rows of CIFAR-10, Dirichlet {alpha:g}, 10 clients",
            plan="scale",
            alpha=alpha,
            seeds=3,
        )
        for alpha in (0.1, 1.0)
    ),
    *(
        replace(
            CIFAR,
            name=f"cifar-clients-{clients}",
            about=f"1,000 rows of CIFAR-10, Dirichlet 1, {clients} clients",
            plan="scale",
            alpha=1.0,
            clients=clients,
            seeds=3,
        )
        for clients in (100, 200)
    ),
    *(
        replace(
            CIFAR,
            name=f"cifar-samples{'-iid' if alpha is None else ''}",
            about=f"1,000 rows of CIFAR-10, {said}, half of the largest client's rows leave",
            plan="puf",
            request="half-of-one",
            alpha=alpha,
            seeds=3,
        )
        for alpha, said in ((None, "IID"), (0.5, "Dirichlet 0.5"))
    ),
    replace(
        CIFAR,
        name="cifar-two",
        about="1,000 rows of CIFAR-10, Dirichlet 0.5, the two largest clients leave",
        plan="puf",
        request="two-clients",
        seeds=3,
    ),
    replace(
        CIFAR,
        name="cifar-poisoned",
        about=(
            "6,000 rows of CIFAR-10, IID, one client of ten poisons half of its rows towards "
            "class 7"
        ),
        plan="backdoor",
        rows=6000,  # of 1,000 the trigger is not learned
        alpha=None,
        poisoned=True,
        seeds=3,
    ),
)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _ALL}
# Judged, drawn and listed in full, the main setting first.
FULL = (
    "cifar-12000-published", "mnist-60000-published", "cifar-12000", "cifar-6000", "cifar",
    "mnist", "digits", "quick",
)  # fmt: skip
