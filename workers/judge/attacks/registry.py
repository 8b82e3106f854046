"""Attacks by the names that policies use."""

from workers.judge.attacks import lira, rmia, shokri, song, yeom
from workers.judge.attacks.attack import Attack

ATTACKS: dict[str, Attack] = {
    "lira": lira.lira,
    "rmia": rmia.rmia,
    "shokri": shokri.shokri,
    "song-confidence": song.song_confidence,
    "song-modified-entropy": song.song_modified_entropy,
    "yeom": yeom.yeom,
}
NEED_REFERENCES = frozenset({"lira", "rmia"})
