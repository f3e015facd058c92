"""The control plane of one server: health, models, identity, counters; never the measured path."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from loadtest.errors import RunError, UsageError
from loadtest.servers import prometheus
from loadtest.servers.arm import NO_COUNTERS
from loadtest.servers.arm import Arm as Arm
from loadtest.servers.arm import arm_from as arm_from
from loadtest.servers.counters import parse_exposition
from loadtest.servers.fetch import Answer, NoAnswer, fetch
from loadtest.servers.hiding import carried, purged, without
from loadtest.servers.kinds import KINDS
from loadtest.servers.told import LONGEST_NAME

TIMEOUT_S = 10.0
ANSWERS_S = 1.0
MOST_NAMED = 20  # models that a sentence names


@dataclass(slots=True)
class Control:
    """HTTP client of one arm's control plane. Redirects are not followed, proxies not used unless asked."""

    arm: Arm
    client: httpx.Client = field(init=False)
    _bare: httpx.Client | None = field(init=False, default=None)  # for a Prometheus, which is not to see the key
    _secrets: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Open the client."""
        headers = self.arm.headers()
        self._secrets = carried(headers)
        self.client = httpx.Client(
            base_url=self.arm.url, headers={"Accept-Encoding": "identity"} | headers, timeout=TIMEOUT_S,
            trust_env=False, verify=self.arm.verification(), follow_redirects=False,
            proxy=self.arm.proxy or None,
        )  # fmt: skip
        if self.arm.prometheus:
            self._bare = httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=self.arm.verification())

    def close(self) -> None:
        """Close its connections."""
        self.client.close()
        if self._bare is not None:
            self._bare.close()

    def without_secrets(self, text: str) -> str:
        """Return a text, such as a server's own words, with the key and the other headers' values hidden."""
        return without(self._secrets, text)

    def purged(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return what the server told of itself, fit to be written down."""
        return dict(purged(self._secrets, data))

    def fetch(self, path: str, limit_s: float = TIMEOUT_S, body: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer to GET `path`, or to POST `body`. Raises NoAnswer, whose text holds no secret."""
        try:
            return fetch(self.client, path, limit_s, body)
        except NoAnswer as error:
            raise NoAnswer(self.without_secrets(str(error))) from None

    def json(
        self, path: str, body: Mapping[str, Any] | None = None, limit_s: float = TIMEOUT_S
    ) -> dict[str, Any] | None:
        """Return the JSON object at `path`; None when there is none."""
        try:
            return self.fetch(path, limit_s, body).object()
        except NoAnswer:
            return None

    def reach(self) -> None:
        """Raise UsageError unless the server answers at all, with what was seen and what to do."""
        where = _capital(self.arm.where)
        try:
            answer = self.fetch("/v1/models")
        except NoAnswer as error:
            raise UsageError(
                f"{where} does not answer ({error})."
                " Is it running, and is the URL right? Servers that are still loading a model do not listen yet."
            ) from error
        if answer.status in (401, 403):
            raise UsageError(
                f"{where} refuses the key (HTTP {answer.status})."
                " Name the environment variable that holds it: --set servers.api_key_env=NAME."
            )
        if 300 <= answer.status < 400:
            raise UsageError(
                f"{where} redirects to {self.without_secrets(answer.location) or '?'!r};"
                " redirects are not followed. Give the final URL."
            )

    def listing(self) -> tuple[list[dict[str, Any]], str]:
        """Return (rows of /v1/models, what was answered instead of such a list)."""
        try:
            answer = self.fetch("/v1/models")
        except NoAnswer as error:
            return [], f"not at all ({error})"
        if answer.status != 200:
            return [], f"with HTTP {answer.status}"
        data = answer.object()
        if data is None:
            kind = self.without_secrets(answer.kind)[:60]
            return [], f"with {repr(kind) if kind else 'something'} that is no JSON object"
        rows = data.get("data")
        if not isinstance(rows, list):
            return [], "with JSON that holds no list `data`"
        return [row for row in rows if isinstance(row, dict)], ""

    def models(self) -> list[dict[str, Any]]:
        """Return the rows of /v1/models; empty when the server has no such list."""
        return self.listing()[0]

    def expositions(self) -> list[str]:
        """Return the text of /metrics of every replica. Raises NoAnswer, also where it is not to be read."""
        if self.arm.metrics == (NO_COUNTERS,):
            raise NoAnswer("its counters are not read")
        replicas, named = self.arm.replicas, len(self.arm.metrics) or 1
        if named < replicas:
            raise NoAnswer(f"{named} of {replicas} replicas is named: give the metrics URL of each")
        texts = []
        for url in self.arm.metrics or ("/metrics",):
            answer = self.fetch(url)
            if answer.status != 200:
                raise NoAnswer(f"HTTP {answer.status}")
            texts.append(answer.text)
        return texts

    def exposition(self) -> str:
        """Return the text of /metrics, replicas one after the other; empty where there is none."""
        if self.arm.prometheus:
            return ""
        try:
            return "\n".join(self.expositions())
        except NoAnswer:
            return ""

    def scrape(self) -> tuple[dict[str, float], list[float], float, str]:
        """Return (values, accepted by slot, seconds it took, what went wrong) of /metrics, replicas added up.

        Of a Prometheus, the first figures that it took after this was called: the seconds are those of its last answer.
        """
        began = time.perf_counter()
        values: dict[str, float] = {}
        positions: list[float] = []
        error = ""
        try:
            if self._bare is not None:
                bare = self._bare
                values, positions, began = prometheus.scrape(self.arm, lambda url: fetch(bare, url, TIMEOUT_S, None))
            else:
                text = "\n".join(self.expositions())
                values, positions = parse_exposition(text, self.arm.model, shared=self.arm.shared)
        except (NoAnswer, ValueError) as failure:
            error = self.without_secrets(str(failure))
        return values, positions, time.perf_counter() - began, error


RESETS = 5  # attempts: blocks are held for a moment after the last request
RESET_PAUSE_S = 0.2


def reset_prefixes(control: Control) -> str:
    """Empty a server's prefix cache; return why that cannot be done, or the empty string."""
    path = KINDS[control.arm.kind].reset if control.arm.kind else ""
    if not path:
        return "a server of this kind has no way to empty its prefix cache"
    said = ""
    for attempt in range(RESETS):
        time.sleep(RESET_PAUSE_S if attempt else 0)
        try:
            answer = control.fetch(path, body={})
        except NoAnswer as error:
            return f"POST {path} was not answered ({error})"
        if answer.status == 200 and (answer.object() or {}).get("success") is not False:
            return ""
        said = f"POST {path} was answered with HTTP {answer.status}"
        if answer.status == 404:
            return f"{said}: vLLM needs VLLM_SERVER_DEV_MODE=1 for it"
    return f"{said}, {RESETS} times"


def answers(url: str) -> bool:
    """Return whether an OpenAI-compatible server answers at `url`, at once."""
    control = Control(Arm(name="server", role="single", url=url))
    try:
        return control.fetch("/v1/models", ANSWERS_S).status in (200, 401, 403)
    except NoAnswer:
        return False
    finally:
        control.close()


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def resolve_model(control: Control, wanted: str) -> str:
    """Return the model to ask for: the wanted one if the server lists it, else the only one listed."""
    rows, instead = control.listing()
    listed = [row["id"] for row in rows if isinstance(row.get("id"), str)]
    where = control.arm.where
    more = f" and {len(listed) - MOST_NAMED:,} more" if len(listed) > MOST_NAMED else ""
    names = control.without_secrets(", ".join(repr(name[:LONGEST_NAME]) for name in listed[:MOST_NAMED])) + more
    if wanted:
        if listed and wanted not in listed:
            raise UsageError(f"The model {wanted!r} is unknown to {where}; it serves {names}.")
        return wanted
    if len(listed) == 1:
        name = str(listed[0])
        if not name.isprintable() or len(name) > LONGEST_NAME:
            raise UsageError(f"{_capital(where)} lists a model whose name cannot be shown: it holds control characters,"
                             f" or over {LONGEST_NAME}. Name the model with --set servers.model=NAME.")  # fmt: skip
        if control.without_secrets(name) != name:  # it goes into every request, record and page
            raise UsageError(f"{_capital(where)} lists a model whose name repeats the key or header that it was sent;"
                             " such a name is not used. Name the model with --set servers.model=NAME.")  # fmt: skip
        return name
    if not listed:
        said = f"answers GET /v1/models {instead}" if instead else "lists no model"
        raise UsageError(f"{_capital(where)} {said}; if it serves one, name it with --set servers.model=NAME.")
    raise UsageError(f"{_capital(where)} serves {names};"
                     " name the one to test with --set servers.model=NAME.")  # fmt: skip


def no_longer_answers(control: Control) -> RunError | None:
    """Return what to raise when the server has gone, else None."""
    try:
        control.fetch("/v1/models")
    except NoAnswer:
        return RunError(f"{_capital(control.arm.where)} no longer answers.")
    return None
