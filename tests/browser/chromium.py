"""A headless Chromium, spoken to over its debugging pipe: JSON messages that end with a zero byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PATH = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
DRAWN = "document.documentElement.dataset.drawn === String(document.querySelectorAll('.plot').length)"
COMPLAINTS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")


class Chromium:
    """One browser with one tab; `events` holds what it reported since the last `open`."""

    def __init__(self) -> None:
        assert PATH is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
        self._process = subprocess.Popen(
            [
                "sh",
                "-c",
                'exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; exec "$@"',
                "sh",
                PATH,
                *FLAGS,
                *sandbox,
                f"--user-data-dir={self._profile.name}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait(20)
        self._process.stdin.close()
        self._process.stdout.close()
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that arrive before it are kept."""
        assert self._process.stdin is not None
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found["error"]
                return dict(found["result"])
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\0" not in self._rest:
            piece = os.read(self._process.stdout.fileno(), 1 << 20)
            assert piece, "the browser has gone"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def value(self, script: str) -> Any:
        """Return what a script evaluates to."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def open(self, path: Path, *, width: int, height: int, scheme: str = "light", unfolded: bool = True) -> None:
        """Show a page of ours at a size and wait until its charts are drawn, `unfolded` those of folded parts too."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.until("document.documentElement.dataset.drawn || document.documentElement.dataset.failed")
        if unfolded:
            self.value("document.querySelectorAll('details.fold').forEach(one => { one.open = true; })")
            every = "[...document.querySelectorAll('.plot')].every(one => one.data)"
            self.until(f"document.documentElement.dataset.failed || {every} && {DRAWN}")

    def until(self, script: str, seconds: float = 60) -> None:
        """Wait until a script's value is true."""
        end = time.monotonic() + seconds
        while not self.value(script):
            assert time.monotonic() < end, (
                f"after {seconds:g} s still not: {script}; the browser said {self.complaints}"
            )
            time.sleep(0.1)

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """Console messages, policy violations, exceptions and dialogs."""
        return [event for event in self.events if event.get("method") in COMPLAINTS]

    @property
    def requests(self) -> list[str]:
        """URLs that the page asked for."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]
