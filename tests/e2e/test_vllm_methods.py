"""Methods of a real vLLM beside n-gram lookup and a draft model: an EAGLE head that knows nothing, suffix decoding.

Suffix decoding needs the extension arctic-inference in vLLM's environment, or in VLLM_ARCTIC (a folder to import from).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from processes import CHAT
from vllm_servers import SHORT, Vllm, assert_counted_alike, up

EAGLE_K, SUFFIX_K = 3, 8
ARCTIC = "VLLM_ARCTIC"

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(900)]


def _judged(loadtest, toy: Path, python: Path, folder: Path, speculative: dict) -> tuple[dict, dict]:
    """Return run.json and verdict.json of a comparison of the toy with and without a method, counted alike."""
    with up(Vllm(python, toy, folder / "baseline.log"), Vllm(python, toy, folder / "method.log", speculative)) as (
        baseline,
        method,
    ):
        command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "1,2", *SHORT, "--blocks", "4",
                               "--baseline", baseline.url, "--speculative", method.url, timeout_s=400)  # fmt: skip
    assert command.process.returncode in (0, 3, 4, 5), command.text
    run, verdict = (json.loads((command.folder / name).read_text()) for name in ("run.json", "verdict.json"))
    assert run["status"] == "complete", run["reason"]
    assert_counted_alike(verdict)
    return run, verdict


def test_a_head_whose_drafts_nobody_accepts_never_pays(loadtest, vllm_python, tiny_models, tmp_path):
    head = {"method": "eagle", "model": str(tiny_models / "toy-eagle"), "num_speculative_tokens": EAGLE_K}
    run, verdict = _judged(loadtest, tiny_models / "toy", vllm_python, tmp_path, head)
    assert run["arms"][1]["speculative"] == {"method": "eagle", "num_speculative_tokens": EAGLE_K}
    for why in verdict["why"]:
        assert why["tau_all"] == pytest.approx(1.0, abs=0.02)
        assert len(why["survival"]) == EAGLE_K
    assert verdict["decision"]["answer"] == "never_pays", verdict["decision"]["headline"]


def test_suffix_decoding_drafts_from_what_was_said(loadtest, vllm_python, tiny_models, tmp_path, monkeypatch):
    more = os.environ.get(ARCTIC)
    if more:
        monkeypatch.setenv("PYTHONPATH", more)
    found = subprocess.run([vllm_python, "-c", "import arctic_inference"], check=False, capture_output=True)
    if found.returncode:
        pytest.skip(f"arctic-inference is not in vLLM's environment, nor in {ARCTIC}: docs/vllm-cpu.md, section 5.")
    suffix = {"method": "suffix", "num_speculative_tokens": SUFFIX_K}
    run, verdict = _judged(loadtest, tiny_models / "toy", vllm_python, tmp_path, suffix)
    assert run["arms"][1]["speculative"]["method"] == "suffix"
    assert all(why["tau_all"] > 1.2 for why in verdict["why"])
