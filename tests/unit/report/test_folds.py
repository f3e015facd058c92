"""Folded parts of the page: each says in one line what it holds, and the ones that carry the answer stay open."""

import dataclasses
import re
import sys
from pathlib import Path

import report_example as example

sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))

from several_runs import five_arms

from loadtest.analyse.results import Comparability
from loadtest.report import folds
from loadtest.report.page import page
from loadtest.report.view import View

FOLDED = {
    "by-class": "At 32 users 1 of 3 classes is faster by its own interval and 1 slower: rag",
    "inter-token": "Time per output token, p95, at 64 users: 26.0 ms (speculative) against 23.3 ms (baseline), +12 %",
    "acceptance": "Per-position acceptance rate: 52 % at slot 1, 1.3 % at slot 5; 50 % of those that reach slot 5",
    "changes": "Another least gain, another metric, no guards.",
    "guards": "not proven 3, holds 4",
    "comparability": "unknown 1, consequence 1, expected 1, equal 1",
    "cells": "83 of 84 cells are valid, 3 of them with a mark",
    "protocol": "The command that repeats this run; the experiment, the servers and the client in full.",
    "definitions": "Every word and metric of this page.",
}
SUMMARY = re.compile(
    r'<details class="fold print"><summary><h2 id="([^"]+)">[^<]+</h2>'
    r'(?:<span class="teaser">([^<]*)</span>)?</summary>'
)


def test_what_serves_proof_is_folded_and_says_what_it_holds():
    shown = page(example.run(), example.full()).replace("\u00a0", " ")
    assert dict(SUMMARY.findall(shown)) == FOLDED
    open_ones = set(re.findall(r'<section aria-labelledby="([^"]+)">', shown)) - set(FOLDED)
    assert open_ones == {"objectives", "load", "expected", "latency", "why", "levels"}


def test_a_violation_stands_first_beside_the_folded_differences():
    kinds = ("equal", "expected", "violation", "waived", "novel", "violation")
    lines = tuple(Comparability(item=kind, kind=kind, baseline="a", candidate="b", source="verified") for kind in kinds)
    judgement = dataclasses.replace(example.full(), comparability=lines)
    said = "violation 2, waived 1, expected 1, equal 1, novel 1"
    assert folds.comparability(View(run={}, judgement=judgement)) == said


def test_of_several_candidates_the_proof_of_each_is_folded():
    shown = page(*five_arms())
    parts = re.findall(r'<details class="fold part print"><summary><h3>([^<]+)</h3>', shown)
    for title in ("Why", "Acceptance of its drafts", "Comparable with the baseline?"):
        assert parts.count(title) == 4
