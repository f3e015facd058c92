"""Whatever stands in the files that are read, the user gets a sentence and never a traceback."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loadtest.analyse.gating import Asked
from loadtest.analyse.judge import judge
from loadtest.analyse.verdict import as_json
from loadtest.errors import LoadtestError, UsageError
from loadtest.experiment import SECTIONS, from_document, from_toml, with_slo_file
from loadtest.report.junit import write_junit
from loadtest.report.markdown import write_summary
from loadtest.report.page import write_page
from loadtest.run_folder import read_run, read_texts
from loadtest.servers.counters import family_names, parse_exposition
from loadtest.servers.file import read_servers
from loadtest.workload.prompts import PromptSource

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
METRICS = (ROOT / "tests" / "data" / "metrics" / "vllm-0.32-ngram-after.txt").read_text()
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, -0.0, 0.5, 1e308, -1e308, float("nan"), float("inf"), "", " ",
    "\0", "\ud800", "\x1b[2J", "<script>", "${HOME}", "{x}", "a" * 5000, "1e999", "٣", "../..", [], {}, [[]], [None],
    [1, "a"], {"": {}}, {"a": {"a": {}}},
]  # fmt: skip
few = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def written(value: Any) -> str:
    """Return a value in TOML; what TOML does not have becomes a string."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(written(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)} = {written(item)}' for name, item in value.items())}}}"
    return json.dumps(str(value).encode("utf-8", "replace").decode())


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of every value in a document."""
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in list(pairs):
        yield document, key
        yield from places(value)


def spoil(document: Any, draw: random.Random) -> None:
    """Replace, remove or double a value somewhere in a document."""
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        found = list(places(document))
        if not found:
            return
        container, key = draw.choice(found)
        if draw.random() < 0.2:
            del container[key]
        elif draw.random() < 0.15 and isinstance(container, list):
            container.append(container[key])
        elif draw.random() < 0.25:
            other, place = draw.choice(found)
            container[key] = json.loads(json.dumps(other[place])) if place in _keys(other) else None
        else:
            container[key] = deepcopy(draw.choice(ODD))


def _keys(container: Any) -> Any:
    return container if isinstance(container, dict) else range(len(container))


def cut(data: bytes, draw: random.Random) -> bytes:
    """Spoil the bytes of a file: turned, cut out, doubled, ended early."""
    for _ in range(draw.choice((1, 1, 2, 8))):
        at, length = draw.randrange(len(data) + 1), draw.choice((0, 1, 1, 7, 200))
        piece = draw.choice(
            (b"", bytes([draw.randrange(256)]), data[at : at + length] * 2, b'"', b"\n", b"[", b"\0", b"1e400")
        )
        data = data[:at] + piece + data[at + length :]
    return data[: draw.randrange(len(data) + 1)] if draw.random() < 0.2 else data


def quietly(act: Callable[[], Any]) -> None:
    """Do it; a sentence for the user is an answer like any other, a warning or another exception is none."""
    said = "no error"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            act()
    except LoadtestError as error:
        said = str(error)
    assert 0 < len(said.strip()) < 20_000


@few
@given(st.randoms(use_true_random=False), st.sampled_from(sorted((ROOT / "scenarios").glob("*.toml"))))
def test_a_scenarios_settings(draw: random.Random, path: Path) -> None:
    if draw.random() < 0.5:
        document = tomllib.loads(path.read_text())
        section = document.setdefault(draw.choice(list(SECTIONS)), {})
        if isinstance(section, dict):
            names = list(SECTIONS[draw.choice(list(SECTIONS))].__dataclass_fields__)
            section[draw.choice(names)] = deepcopy(draw.choice(ODD))
        spoil(document, draw)
        text = "\n".join(f"{json.dumps(name)} = {written(value)}" for name, value in document.items())
    else:
        text = cut(path.read_bytes(), draw).decode("utf-8", "replace")
    quietly(lambda: from_toml(text, path.name))


@few
@given(st.randoms(use_true_random=False))
def test_objectives(draw: random.Random) -> None:
    path = draw.choice(sorted((GOLDEN / "slo").glob("*.toml")))
    document = tomllib.loads(path.read_text())
    spoil(document, draw)
    text = "\n".join(f"{json.dumps(name)} = {written(value)}" for name, value in document.items())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "slo.toml").write_text(text)
        quietly(lambda: with_slo_file(from_toml("", "x"), Path(folder) / "slo.toml"))


@few
@given(st.randoms(use_true_random=False), st.sampled_from(sorted((ROOT / "servers").glob("*.toml"))))
def test_a_servers_file(draw: random.Random, path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "servers.toml"
        if draw.random() < 0.7:
            document = tomllib.loads(path.read_text())
            spoil(document, draw)
            text = "\n".join(f"{json.dumps(name)} = {written(value)}" for name, value in document.items())
            file.write_text(text)
        else:
            file.write_bytes(cut(path.read_bytes(), draw))
        quietly(lambda: read_servers(file, {"HOME": "/home/a", "MODEL": "m\0", "HF_TOKEN": "hf_0123456789"}))


@few
@given(
    st.randoms(use_true_random=False), st.sampled_from(sorted((ROOT / "tests" / "data" / "prompts").glob("*.jsonl")))
)
def test_a_prompt_file(draw: random.Random, path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    if draw.random() < 0.6:
        place = draw.randrange(len(lines))
        document = json.loads(lines[place])
        spoil(document, draw)
        lines[place] = json.dumps(document)
        data = "\n".join(lines).encode()
    else:
        data = cut(path.read_bytes(), draw)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"prompts{draw.choice(('.jsonl', '.json', '.csv', '.tsv', '.txt'))}"
        file.write_bytes(data)
        quietly(lambda: PromptSource(file).protocol())


@few
@given(st.randoms(use_true_random=False), st.sampled_from(["", "m", "a\\b"]), st.booleans())
@example(random.Random(1), "", False)
def test_the_text_of_metrics(draw: random.Random, model: str, shared: bool) -> None:
    text = cut(METRICS.encode(), draw).decode("utf-8", "replace")
    try:
        values, positions = parse_exposition(text, model, shared=shared)
    except ValueError:
        return  # the documented answer to a text that is none
    assert all(abs(value) <= 1e18 for value in (*values.values(), *positions))
    family_names(text)


def drawn_from(folder: Path) -> None:
    """Do all that `loadtest report` does with a folder, except to print."""
    header, judgement = read_run(folder), judge(folder, Asked(gate=True, allow_simulated=True))
    json.dumps(as_json(judgement))
    write_summary(folder, header, judgement)
    write_junit(folder, header, judgement)
    write_page(folder, header, judgement, read_texts(folder))


def spoiled_run(name: str, seed: int, place: Path) -> Path:
    """Return a golden run with one of its files spoiled."""
    draw = random.Random(seed)
    folder = Path(shutil.copytree(GOLDEN / name, place / "run"))
    file = folder / draw.choice(("run.json", "run.json", "run.json", "cells.jsonl", "server.jsonl", "requests.parquet"))
    if file.suffix == ".parquet" or draw.random() < 0.2:
        file.write_bytes(cut(file.read_bytes(), draw))
        return folder
    lines = [file.read_text()] if file.suffix == ".json" else file.read_text().splitlines()
    at = draw.randrange(len(lines))
    document = json.loads(lines[at])
    spoil(document, draw)
    lines[at] = json.dumps(document)
    file.write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("seed", [0, 3, 55])  # 55: `arms` of run.json is a number
def test_a_runs_folder(seed: int, tmp_path: Path) -> None:
    folder = spoiled_run("good", seed, tmp_path)
    quietly(lambda: drawn_from(folder))


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["good", "alone", "slower", "simulated"])
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_many_runs_folders(name: str, seed: int, tmp_path: Path) -> None:
    folder = spoiled_run(name, seed, tmp_path)
    quietly(lambda: drawn_from(folder))


def test_a_settings_document_that_is_none() -> None:
    for value in ODD:
        quietly(
            lambda value=value: from_document(
                {"load": value} if isinstance(value, dict) else {"load": {"levels": value}}
            )
        )


@pytest.mark.parametrize(
    "name",
    ["run.json", "cells.jsonl", "server.jsonl", "plan.jsonl", "outputs.jsonl", "requests.parquet", "requests-2.arrows"],
)
def test_a_pipe_in_a_runs_folder_is_refused_and_not_waited_for(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "good", tmp_path / "run"))
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(UsageError, match=r"it is no file|holds no run\.json"):
        judge(folder)


def test_a_pipe_is_no_servers_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "servers.toml")
    with pytest.raises(UsageError, match="is not a file"):
        read_servers(tmp_path / "servers.toml", {})
