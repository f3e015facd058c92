"""Secrets, hidden wherever they stand."""

import base64
import json
from base64 import urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest

from loadtest.servers import hiding
from loadtest.servers.hiding import carried, clean, without

KEY = "KEYCANARY777"


def test_a_secret_is_hidden_whole_and_cut():
    secrets = carried({"Authorization": f"Bearer {KEY}", "X-Two": "two  blanks"})
    assert without(secrets, f"bad key Bearer {KEY}, or {KEY}") == "bad key Bearer (hidden), or (hidden)"
    assert without(secrets, "bad key Bearer KEYCANA…") == "bad key Bearer (hidden)…"
    assert without(secrets, "bad key KEYCANARY77… is none") == "bad key (hidden)… is none"
    assert without(secrets, "said two blanks") == "said (hidden)"
    assert without(secrets, "a KEY… is needed") == "a KEY… is needed"
    assert without((), KEY) == KEY
    assert without(secrets, "KeyCanary777 and keycana… are no better") == "(hidden) and (hidden)… are no better"


def test_a_secret_is_hidden_in_every_form_that_a_server_may_give_it():
    key = 'sk-"K/Y+ 7=&\\ 9!'
    secrets = carried({"Authorization": f"Bearer {key}"})
    plain, coded = key.encode(), base64.b64encode
    for said in (
        f"<{key}>", json.dumps({"key": key}), key.replace("/", "\\/"),
        f"?key={quote(key, safe='')}&x", f"?key={quote(key)}", f"?key={quote_plus(key)}",
        "?key=sk-%22K%2fY%2b%207%3d%26%5c%209%21",
        *(coded(b"a" * before + plain + b"zz" * after).decode() for before in range(7) for after in range(3)),
        coded(f"Bearer {key}".encode()).decode(), urlsafe_b64encode(b"user:" + plain).decode(),
    ):  # fmt: skip
        hidden = without(secrets, said)
        assert "(hidden)" in hidden, said
        for form in (key, quote(key), coded(plain).decode()[:8]):
            assert form not in hidden


def test_short_secrets_are_not_looked_for_in_base64_and_none_is_empty():
    assert set(carried({"X-Id": "abc"})) == {"abc"}
    assert carried({"X-Id": ""}) == ()
    assert without(carried({"X-Id": "team-4"}), "team-4 dGVh bWFrZQ") == "(hidden) dGVh bWFrZQ"


@pytest.mark.parametrize("piece", [1, 7, 64, 2**20])
@pytest.mark.parametrize(
    "text",
    [
        "nothing of note\nin two lines\n",
        "abcd" * 40,  # without a line's end; grows where it is hidden
        "a s3cret\nS3CRET=s3cre… then two\nlines and two\nlin\n",
        "ünïcödé s3cret " * 9 + "s3cre",
        "two\ntwo\nlines\ntwo\nlines",
    ],
)
def test_a_log_cleaned_in_pieces_reads_as_if_it_were_cleaned_at_once(tmp_path, text, piece):
    log = tmp_path / "log"
    secrets = ("s3cret", "abcd", "two\nlines", "a much longer one than any of the others")
    log.write_text(text, encoding="utf-8")
    clean(log, secrets, piece)
    assert log.read_text(encoding="utf-8") == without(secrets, text)


def test_bytes_that_are_no_text_stay_in_a_cleaned_log(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe s3cret \xc3")
    clean(log, ["s3cret"], 3)
    assert log.read_bytes() == b"\xff\xfe (hidden) \xc3"


def test_what_cannot_be_cleaned_to_its_end_keeps_no_secret(tmp_path, monkeypatch):
    log = tmp_path / "log"
    log.write_text("one s3cret\n" * 9)
    real = hiding.without
    calls = iter(range(3))

    def fails_later(secrets, text):
        if next(calls) == 2:
            raise OSError(5, "Input/output error")
        return real(secrets, text)

    monkeypatch.setattr(hiding, "without", fails_later)
    with pytest.raises(OSError, match="Input/output"):
        clean(log, ["s3cret"], 30)
    assert "s3cret" not in log.read_text()
