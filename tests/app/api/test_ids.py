"""Ids that look the same are the same: every other spelling is refused."""

import json
import unicodedata
from typing import Any

import numpy as np
import pytest

from app.problems import UploadError
from app.uploads.npz import ids
from lethe.identity import normalise
from lethe.ids import MOST, check_id, is_id
from tests.app.api.test_requests import problem
from tests.installation import Installation
from tests.small import MODEL, rows

NAME = unicodedata.normalize("NFC", "José Núñez")
LIKE = {
    "NFD": unicodedata.normalize("NFD", NAME),
    "a blank behind": NAME + " ",
    "a blank in front": " " + NAME,
    "a no-break space": NAME + "\u00a0",
    "a zero-width space": NAME + "\u200b",
    "a joiner": NAME[:4] + "\u200d" + NAME[4:],
    "a mark of direction": "\u200e" + NAME,
    "a private character": NAME + "\ue000",
    "a no-break space inside": NAME.replace(" ", "\u00a0"),
    "a wide space inside": NAME.replace(" ", "\u3000"),
    "a line separator": NAME.replace(" ", "\u2028"),
    "a variation selector": NAME + "\ufe0f",
    "a variation selector of names": NAME + "\U000e0100",
    "a joiner of marks": NAME[:4] + "\u034f" + NAME[4:],
    "a Hangul filler": NAME + "\u3164",
    "a half-width filler": "jose\uffa0",
    "an empty Braille pattern": NAME + "\u2800",
    "a line": NAME + "\n",
    "a blank behind ASCII": "jose ",
    "a control character": "jo\x7fse",
    "nothing": "",
    "too much": "a" * (MOST + 1),
}


@pytest.mark.parametrize("text", LIKE.values(), ids=LIKE)
def test_other_spellings_are_no_ids(text: str) -> None:
    assert not is_id(text)
    with pytest.raises(ValueError, match="an id has 1 to 200 printable"):
        check_id(text)
    if text:
        with pytest.raises(UploadError, match=r"NFC|misstates|printable"):
            ids(
                np.array(["r1", text + "\x00" if text.endswith("\x00") else text]), "records", 2
            )


@pytest.mark.parametrize("text", ["r1", NAME, "a b", "名前", "a" * MOST, "0"])
def test_ids_are_kept_as_they_are(text: str) -> None:
    assert is_id(text)
    assert check_id(text) == text
    assert ids(np.array([text, "x"]), "records", 2) == [text, "x"]


def test_a_plain_array_is_as_any_other() -> None:
    for text in map(chr, range(1, 0x100)):
        for whole in (text, f"a{text}", f"{text}a", f"a{text}a"):
            try:
                found: list[str] | None = ids(np.array([whole, "x"]), "records", 2)
            except UploadError:
                found = None
            assert (found is not None) == is_id(whole), ascii(whole)


def test_an_invisible_character_makes_no_other_person() -> None:
    assert normalise("email", "ann\u200b@x.org\u2060") == normalise("email", "Ann@x.org")


def test_neither_rows_nor_requests_bring_a_second_spelling(installation: Installation) -> None:
    caller = installation.caller
    caller.register_key()
    arrays: dict[str, Any] = rows()
    arrays["subjects"] = np.array(
        [NAME, LIKE["NFD"], *map(str, range(len(arrays["labels"]) - 2))]
    )
    refused = caller.register_model(arrays)
    assert "NFC" in problem(refused, 422, "upload-invalid")["detail"]
    arrays["subjects"][1] = NAME
    assert caller.register_model(arrays).status_code == 201
    installation.drain()
    for spelling, status in (
        (LIKE["NFD"], 422),
        (LIKE["a zero-width space"], 422),
        (NAME, 202),
    ):
        scope = {"level": "subject", "client": str(arrays["clients"][0]), "subject": spelling}
        body = {"model": MODEL, "scope": scope, "regulation": "gdpr"}
        answer = caller.signed("POST", "/v1/requests", json.dumps(body).encode())
        assert answer.status_code == status, answer.text
        assert NAME not in answer.text
