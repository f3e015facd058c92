from __future__ import annotations

import pytest

from loadtest.drive.header import _unverified
from loadtest.servers.control import Arm

CASES = [("https://a:8000", True, True), ("https://a:8000", False, False), ("http://a:8000", True, False)]


@pytest.mark.parametrize(("url", "insecure", "noted"), CASES)
def test_a_certificate_that_is_not_looked_at_is_noted(url: str, insecure: bool, noted: bool) -> None:
    arm = Arm(name="baseline", role="baseline", url=url, model="m", insecure=insecure)
    said = "The TLS certificate of baseline (https://a:8000) was not verified (insecure = true): who answered is open."
    assert _unverified([arm]) == ([said] if noted else [])
