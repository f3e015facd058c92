"""Public targets need a confirmation after the cost was shown; loopback and private ones do not."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.drive.public_targets import cost_of, refuse_unconfirmed
from loadtest.errors import UsageError
from loadtest.servers import address
from loadtest.servers.address import is_public

SCENARIO = Path(__file__).parents[3] / "scenarios" / "chat.py"


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("http://127.0.0.1:8000", False), ("http://localhost", False), ("http://[::1]:8000", False),
        ("http://10.1.2.3", False), ("http://172.16.0.9", False), ("http://192.168.1.1", False),
        ("http://169.254.1.1", False), ("http://100.64.0.1", False), ("http://[fd00::1]", False),
        ("http://8.8.8.8", True), ("https://[2001:4860:4860::8888]", True),
        ("http://vllm.models.svc.cluster.local", False), ("http://gpu.local:8000", False),
    ],
)  # fmt: skip
def test_addresses(url: str, public: bool) -> None:
    assert is_public(url) is public


@pytest.mark.parametrize(
    ("found", "public"), [(["10.0.0.7"], False), (["10.0.0.7", "8.8.8.8"], True), (["2001:4860:4860::8888"], True)]
)
def test_names_are_looked_up(monkeypatch: pytest.MonkeyPatch, found: list[str], public: bool) -> None:
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 0)) for place in found]
    monkeypatch.setattr(address.socket, "getaddrinfo", lambda *_, **__: entries)
    assert is_public("https://api.example.com/v1") is public


def test_a_name_that_nobody_knows_is_public_unless_it_is_of_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(address.socket, "getaddrinfo", unknown)
    assert is_public("https://api.example.com") is True
    assert is_public("http://baseline:8000") is False


def planned(url: str):
    words = ("window.min_requests=50", "plan.stages=one", "generation.max_tokens=128")
    return prepare(Options(scenario=SCENARIO, server=url, levels="1,16", blocks=3, assignments=words), {})


def test_a_way_through_a_public_proxy_is_public() -> None:
    words = ("plan.stages=one", "servers.proxy=http://8.8.8.8:3128")
    through = prepare(Options(scenario=SCENARIO, server="http://10.0.0.1", levels="1", assignments=words), {})
    with pytest.raises(UsageError, match=r"^http://8\.8\.8\.8:3128 may be on the public internet"):
        refuse_unconfirmed(through, yes=False)
    refuse_unconfirmed(through, yes=True)


def test_the_cost_is_said_and_yes_confirms_it() -> None:
    public = planned("http://8.8.8.8")
    assert cost_of(public) == ("6 cells of at least 50 requests each, so at least 300 requests of up to 128 output"
                               " tokens (up to 38,400), up to 16 at a time")  # fmt: skip
    with pytest.raises(UsageError, match=r"http://8\.8\.8\.8 may be on the public internet\. .* 38,400.* add --yes\."):
        refuse_unconfirmed(public, yes=False)
    refuse_unconfirmed(public, yes=True)
    refuse_unconfirmed(planned("http://192.168.1.7:8000"), yes=False)
