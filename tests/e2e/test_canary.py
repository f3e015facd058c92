"""A key and a header's value, given through the environment, stand in no byte that is produced: files, page, terminal,
logs, command lines; plain, in base64, percent-encoded; whatever the server does with them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty import DONE, END, HEAD, MODEL, MODELS, Asked, Faulty, Script, answer, chunked, event, response, token
from processes import Command, Starter

pytestmark = pytest.mark.e2e
KEY = "sk-c4nary/K3Y+7x=9&w"
TEAM = "team c4nary/T34M+5z"
ENVIRONMENT = {"CANARY_KEY": KEY, "CANARY_TEAM": TEAM}


def forms(secret: str) -> set[bytes]:
    """Every form that is looked for; base64 without the ends that depend on what stands around."""
    plain = secret.encode()
    found = {plain, quote(secret, safe="").encode(), quote(secret).encode(), quote_plus(secret).encode()}
    found |= {plain.replace(b"/", b"\\/"), plain.replace(b"&", b"&amp;"), plain.replace(b"&", b"\\u0026")}
    for before in range(3):
        for after in range(3):
            coded = base64.b64encode(b"?" * before + plain + b"?" * after)
            found |= {coded[4:-4], coded[4:-4].translate(bytes.maketrans(b"+/", b"-_"))}
    found |= {plain[: len(plain) // 2]}  # a part is no better
    return {form.lower() for form in found}


FORMS = forms(KEY) | forms(TEAM)


def leaks(data: bytes) -> list[bytes]:
    lowered = data.lower()
    return [form for form in FORMS if form in lowered]


def texts_of(table: pa.Table) -> Iterator[bytes]:
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind):
            yield from (str(value).encode() for value in column.to_pylist())


def produced(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a run as it is, and the texts within tables once they are decoded."""
    for path in sorted(folder.rglob("*")):
        yield str(path), str(path).encode()
        if path.is_file():
            yield str(path), path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            yield f"{path}, decoded", b"\n".join([*texts_of(table), *(table.schema.metadata or {}).values()])
        if path.suffix == ".arrows":
            with path.open("rb") as source:
                table = pa.ipc.open_stream(source).read_all()
            yield f"{path}, decoded", b"\n".join(texts_of(table))


class Watch:
    """Looks at the command lines of all processes, and at the records under way, while a run is going."""

    def __init__(self, out: Path) -> None:
        self.found: list[str] = []
        self.seen = 0
        self._out, self._over = out, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            paths = [*Path("/proc").glob("[0-9]*/cmdline"), *self._out.glob("*/*.arrows"), *self._out.glob("*/*.json*")]
            for path in paths:
                try:
                    data = path.read_bytes()
                except OSError:
                    continue
                self.seen += str(self._out).encode() in data
                self.found += [f"{path}: {form!r}" for form in leaks(data)]


def test_what_is_looked_for_would_be_found() -> None:
    page = f"<p>{quote(KEY)}</p>"
    assert leaks(page.encode())
    assert leaks(base64.b64encode(f'{{"authorization": "Bearer {KEY}", "x": 1}}'.encode()))
    assert leaks(json.dumps({"team": TEAM}).encode())
    assert not leaks(b"Bearer (hidden)")


def said_back(asked: Asked) -> list[str]:
    """The secrets in every form that a server may say them in."""
    assert f"Authorization: Bearer {KEY}".encode() in asked.head
    assert f"X-Team: {TEAM}".encode() in asked.head
    coded = [base64.b64encode(text.encode()).decode() for text in (KEY, f"Bearer {KEY}", f"no {TEAM}!")]
    escaped = [quote(KEY, safe=""), quote_plus(TEAM), KEY.replace("/", "\\/")]
    return [KEY, TEAM, KEY.upper(), *escaped, *coded, "\u200b".join(KEY)]


def echo(asked: Asked) -> Script:
    """Say the secrets back in whatever place the prompt names."""
    said = said_back(asked)
    together = " ".join(said)
    line = " ".join(text for text in said if text.isascii())
    stream = HEAD.replace(b"\r\n\r\n", f"\r\nx-echo: {line}\r\nserver: {line}\r\n\r\n".encode())
    two = [stream, token(1, model=together), token(2, model=together, system_fingerprint=together)]
    ends: dict[str, Script] = {
        "json": [response("401 Unauthorized", json.dumps({"error": {"message": together}}).encode())],
        "text": [response("500 Oops", together.encode(), "text/plain")],
        "cut": [response("500 Oops", b"." * 290 + KEY.encode() + b"." * 900, "text/plain")],
        "html": [response("502 Bad", f"<pre>{together}</pre>".encode(), "text/html")],
        "wait": [response("429 Too Many", b"{}", "application/json", f"retry-after: {line}")],
        "location": [response("302 Found", b"", "text/plain", f"location: http://x.invalid/?key={KEY}&team={line}")],
        "type": [response("200 OK", b"{}", f"application/{KEY}")],
        "reason": [f"HTTP/1.1 418 {KEY}\r\ncontent-length: 0\r\n\r\n".encode()],
        "coding": [stream.replace(b"\r\n\r\n", f"\r\ncontent-encoding: {KEY}\r\n\r\n".encode())],
        "id": [*two, token(3, id=together)],
        "model": [*two, token(3, model=KEY)],
        "event": [*two, event(error={"message": together, "type": KEY, "code": KEY}), chunked(DONE) + END],
        "words": [*two, chunked(f"event: error\ndata: {together}\n\n".encode())],
        "broken": [*two, chunked(f"data: {{{KEY}\n\n".encode())],
        "count": [*two, event(choices=[], usage={"completion_tokens": KEY})],
        "finish": [*two, token(3, finish=KEY, model=together), event(choices=[], usage={"completion_tokens": 3}),
                   chunked(DONE) + END],
        "content": [stream, event(id=f"x-{KEY}", choices=[{"index": 0, "delta": {"content": together},
                    "finish_reason": "stop"}], usage={"prompt_tokens": 5, "completion_tokens": 7}),
                    chunked(DONE) + END],
    }  # fmt: skip
    return ends.get(asked.case) or answer(counted=asked.counts)


PLACES = ["json", "text", "cut", "html", "wait", "location", "type", "reason", "coding", "id", "model", "event",
          "words", "broken", "count", "finish", "content"]  # fmt: skip
SCENARIO = f"""
from loadtest.scenario import LLMUser, task

PLACES = {PLACES}

class Mine(LLMUser):
    asked = 0

    @task
    def ask(self):
        self.asked += 1
        place = PLACES[self.number % len(PLACES)] if self.asked % 2 == 0 else "good"
        self.chat([{{"role": "user", "content": f"[{{place}}] {{self.number}}/{{self.asked}}"}}], category=place)
"""


def _servers(folder: Path, baseline: Faulty, candidate: Faulty) -> Path:
    path = folder / "servers.toml"
    path.write_text("".join(
        f'[arms.{name}]\nrole = "{role}"\nurl = "{server.url}"\napi_key_env = "CANARY_KEY"\n'
        'headers_env = {"X-Team" = "CANARY_TEAM"}\n\n'
        for name, role, server in (("plain", "baseline", baseline), ("drafting", "candidate", candidate))
    ))  # fmt: skip
    return path


def _assert_clean(command: Command) -> None:
    assert not leaks(command.text.encode()), command.text
    if command.out.exists():
        for name, data in produced(command.out):
            assert not leaks(data), f"{name}: {leaks(data)}"


def test_a_whole_run_keeps_the_secrets_whatever_the_servers_say_back(loadtest: Starter, tmp_path: Path) -> None:
    def models() -> bytes:
        row = {"id": MODEL, "root": KEY, "owned_by": TEAM}
        return response("200 OK", json.dumps({"data": [row]}).encode(), "application/json", f"x-echo: {KEY}")

    config = {"model": TEAM, "deep": [KEY, {"key": TEAM}]}
    told = {"count": 7, "version": KEY, "vllm_config": config, "vllm_env": {"A": KEY, KEY: TEAM}}
    other = response("200 OK", json.dumps(told).encode())
    server = Faulty(echo, models=models(), other=other)
    (tmp_path / "mine.py").write_text(SCENARIO)
    watch = Watch(loadtest.out)
    try:
        command = loadtest.run(
            "run", tmp_path / "mine.py", "--out", loadtest.out, "--servers", _servers(tmp_path, server, server),
            "--arms", "drafting", "--levels", len(PLACES), "--window", "2s", "--blocks", "1", "--set",
            "load.think_time=0", "--set", "servers.token_counts=all", "--set", "generation.max_tokens=4", **ENVIRONMENT,
        )  # fmt: skip
        report = loadtest.run("report", command.folder, **ENVIRONMENT)
    finally:
        watch.stop()
        server.stop()
    assert command.process.returncode == 0, command.text
    assert report.process.returncode == 0
    rows = pq.read_table(command.folder / "requests.parquet").to_pylist()
    assert {row["category"] for row in rows} == {*PLACES, "good"}, "every place occurred"
    hidden = {row["category"] for row in rows if "(hidden)" in row["error"] + row["response_id"] + row["finish_reason"]}
    assert hidden >= set(PLACES) - {"reason", "good"}
    assert watch.seen > 0, "the processes of the run were seen"
    assert watch.found == []
    _assert_clean(command)
    _assert_clean(report)
    assert "CANARY_KEY" in (command.folder / "run.json").read_text(), "the protocol names the variable"


def _refusing(asked: Asked) -> Script:
    return [response("403 Forbidden", json.dumps({"error": " ".join(said_back(asked))}).encode())]


BEFORE: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "refused": ({"models": response("401 No", f"no {KEY} {TEAM}".encode())}, {}, "refuses the key (HTTP 401)"),
    "redirected": ({"models": response("307 Go", b"", "", f"location: http://x/{quote(KEY, safe='')}/{TEAM}")}, {},
                   "redirects to"),
    "a model": ({"models": response("200 OK", json.dumps({"data": [{"id": f"m-{KEY}"}]}).encode())}, {},
                "lists a model whose name repeats the key"),
    "models": ({"models": response("200 OK", json.dumps({"data": [{"id": KEY}, {"id": f"x{TEAM}"}]}).encode())}, {},
               "serves"),
    "first chat": ({"script": _refusing}, {}, "did not answer a first chat request"),
    "not sent": ({}, {"CANARY_KEY": f"{KEY}\n"}, "ends with a blank or a line break"),
    "not set": ({}, {"CANARY_KEY": ""}, "CANARY_KEY, named for api_key_env, is not set"),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_what_ends_before_the_load_says_nothing_of_them(loadtest: Starter, tmp_path: Path, name: str) -> None:
    given, environment, said = BEFORE[name]
    (tmp_path / "mine.py").write_text(SCENARIO)
    server = Faulty(**{"models": MODELS, **given})
    try:
        command = loadtest.run("run", tmp_path / "mine.py", "--out", loadtest.out, "--servers",
                               _servers(tmp_path, server, server), "--arms", "drafting",
                               **(ENVIRONMENT | environment))  # fmt: skip
    finally:
        server.stop()
    assert command.process.returncode == 2, command.text
    assert said in " ".join(command.text.split())
    _assert_clean(command)
