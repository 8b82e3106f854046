"""The pages on families of models: each registers one as it says."""

import json
from importlib import metadata

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lethe.signing.keys import load_public_key
from tests.docs.markdown import blocks
from tests.docs.tried import files
from tests.docs.tried.desk import Desk, Page
from tests.docs.tried.files import first
from tests.e2e.harness import until
from tests.small import manifest, pack, rows

WARDS = ("ward-1", "ward-2", "ward-3")


def recipe(desk: Desk) -> None:
    files.customers(desk)
    (desk.directory / "recipe.json").write_text(first("docs/recipes.md"))


def script(desk: Desk) -> None:
    files.customers(desk)
    folder = desk.directory / "folder"
    folder.mkdir()
    (folder / "script.json").write_text(first("docs/scripts.md"))
    lock = [
        f"{name}=={metadata.version(name)}\n" for name in ("numpy", "pyarrow", "safetensors")
    ]
    (folder / "requirements.lock").write_text("".join(lock))
    program = blocks("docs/scripts.md", "python")[0]
    (folder / "train.py").write_text(program)


def sums(desk: Desk) -> None:
    files.customers(desk, "spend", "w")


def vectors(desk: Desk) -> None:
    """Write passages and the centroids of an index of them."""
    rng, count, width = np.random.default_rng(0), 300, 64
    embedding = rng.normal(size=(count, width)).astype(np.float32)
    columns = {
        "id": [f"p{row}" for row in range(count)],
        "tenant": [f"t{row % 3}" for row in range(count)],
        "author_email": [f"author{row % 9}@example.org" for row in range(count)],
        "embedding": list(embedding),
        "text": ["words"] * count,
    }
    pq.write_table(pa.table(columns), desk.directory / "passages.parquet")
    np.save(desk.directory / "centroids.npy", embedding[:16])
    (desk.directory / "index.json").write_text(first("docs/vectors.md"))


def masked(desk: Desk) -> None:
    """Register a masked model and the keys of its three members."""
    with desk.operator() as operator:
        operator.register_model(manifest(ref="wards", data="masked", penalty=1000.0))
        for number, name in enumerate(WARDS, 1):
            desk.run(f"lethe key new --out ward{number} --keyid {name}")
            pem = (desk.directory / f"ward{number}.pub.pem").read_bytes()
            operator.register_key(load_public_key(pem), "client", keyid=name, client=name)
            mine = rows(seed=number, count=12, first=100 * number)
            mine["clients"] = np.array([name] * 12)
            path = "rows.npz" if number == 1 else f"rows{number}.npz"
            (desk.directory / path).write_bytes(pack(mine))


def others_join(desk: Desk) -> None:
    """Have the other members join the round from their machines."""
    for number in (2, 3):
        desk.run(
            f"lethe round join --key ward{number}.pem --keyid ward-{number} "
            f"--roster roster.json --data rows{number}.npz > joined{number} 2>&1 &"
        )


def x_rays(desk: Desk) -> None:
    """Write a few images of two classes."""
    rng, count = np.random.default_rng(0), 60
    labels = rng.integers(2, size=count)
    inputs = rng.normal(size=(count, 1, 28, 28)) + labels[:, None, None, None]
    np.savez(
        desk.directory / "x-rays.npz",
        inputs=inputs.astype(np.float32),
        labels=labels,
        clients=np.array([f"site{row % 3}" for row in range(count)]),
        label_names=np.array(["clear", "shadow"]),
    )


def networks(desk: Desk) -> None:
    x_rays(desk)
    document = json.loads(first("docs/register-networks.md"))
    document["ref"], document["training"]["rounds"] = "others", 1
    (desk.directory / "manifest.json").write_text(json.dumps(document))


def silo_has_its_key(desk: Desk) -> None:
    until((desk.keys / "silo-0.pem").exists, "the silo's key")


SMALL = {"--rounds 20 --epochs 2": "--rounds 1 --epochs 1"}
PAGES = {
    "docs/recipes.md": Page(prepare=recipe),
    "docs/shards.md": Page(prepare=recipe),
    "docs/scripts.md": Page(prepare=script),
    "docs/sums.md": Page(prepare=sums),
    "docs/vectors.md": Page(prepare=vectors),
    "docs/masked-rounds.md": Page(
        prepare=masked,
        before={"lethe round join": others_join},
        stands={"ID": lambda desk: desk.found(r'"id": ?"([^"]+)"', 0)},
    ),
    "docs/register-networks.md": Page(prepare=x_rays, stands=SMALL),
    "docs/policies.md": Page(),
    "docs/networks-and-silos.md": Page(
        prepare=networks,
        stands={
            **SMALL,
            "--pairs 128 --rows 1000": "--pairs 16 --rows 20",
            "stop ID": lambda desk: "stop " + desk.found(r"^([0-9a-f-]{36})$", 0),
            "lethe-data/keys": "{keys}",
        },
        before={"lethe service-key rotate": silo_has_its_key},
        serves={"LETHE_SILOS=2": ""},
    ),
}
