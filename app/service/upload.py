"""What clients contribute, after every check of shape, on its way into the vault."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    """A contribution: `rows` rows with distinct `records`, of `clients` and `subjects`.

    `data` is an uncompressed .npz of exactly these arrays. Rows, from `app.api.uploads`:
    features (n, d) float16/32/64, finite; labels (n,) int64 in 0…classes-1; records, clients
    and subjects (n,) unicode. Statistics, from `app.api.messages`: see there. It is kept
    sealed and shredded in the transaction that learns it: raw features outlive their
    quantised form by seconds.
    """

    data: bytes
    rows: int
    records: list[str]
    clients: list[str]
    subjects: list[str]
