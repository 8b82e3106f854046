"""Sentiment140's CSV: tweets, their authors, and whether they are negative or positive.

Source: Go, Bhayani and Huang 2009. Columns without a header, in Latin-1, all quoted:
polarity (0 negative, 2 neutral, 4 positive), id, date, query, user, text.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels
from workers.errors import DatasetError

LABELS = {"0": 0, "4": 1}
NEUTRAL = "2"  # only in the small test file, and left out as in the paper
COLUMNS = 6
LABEL_NAMES = ("negative", "positive")


@dataclass(frozen=True, slots=True, eq=False)
class Tweets:
    """texts, n of them; labels (n,) int64 into LABEL_NAMES; clients (n,): who wrote them."""

    texts: tuple[str, ...]
    labels: Labels
    clients: NDArray[np.str_]


def load_sentiment140(path: Path, *, limit: int | None = None) -> Tweets:
    """Return the tweets of a file with their users as clients, at most the first `limit`.

    Raises DatasetError naming the line and column at fault; a message quotes no tweet.
    """
    texts: list[str] = []
    labels: list[int] = []
    users: list[str] = []
    try:
        with path.open(encoding="latin-1", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if limit is not None and len(texts) >= limit:
                    break
                if len(row) != COLUMNS:
                    raise DatasetError(f"line {reader.line_num}: must have {COLUMNS} columns")
                polarity, _, _, _, user, text = row
                if polarity == NEUTRAL:
                    continue
                if polarity not in LABELS:
                    raise DatasetError(f"line {reader.line_num}: polarity must be 0, 2 or 4")
                if not user:
                    raise DatasetError(f"line {reader.line_num}: the user is missing")
                texts.append(text)
                labels.append(LABELS[polarity])
                users.append(user)
    except csv.Error:
        raise DatasetError("the file is no CSV: a quotation or a field has no end") from None
    except OSError:
        raise DatasetError("the CSV file cannot be read") from None
    if not texts:
        raise DatasetError("texts: there is none")
    return Tweets(tuple(texts), np.array(labels, dtype=np.int64), np.array(users, np.str_))
