"""Do both arms answer alike? Asks each the same prompts, one request after the other, while nothing is measured.

At temperature 0 the baseline answers twice and the candidate once; above 0 each answers twice. What is kept of the
answers, hashes and counts and no text unless asked for, stands in outputs.jsonl, a line for each prompt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from loadtest.drive.answers import Answered, compared, read_answer
from loadtest.drive.openai import CHAT_PATH, chat_body
from loadtest.errors import LoadtestError, UsageError
from loadtest.json_files import PRIVATE, LineWriter
from loadtest.servers.control import Arm, Control
from loadtest.servers.fetch import NoAnswer
from loadtest.servers.identity import Identity
from loadtest.settings import Experiment
from loadtest.workload.sessions import SessionKey, SessionSource

if TYPE_CHECKING:  # the driver, which asks, does without what prepares a run
    from loadtest.drive.prepare import Prepared

FILE = "outputs.jsonl"
DEFAULT_PROMPTS = 40  # of which, if none differs, at most 8.8 % may with 95 % confidence: below the default margin
TRIES = 4  # sessions looked at for each prompt that is wanted, as some repeat
HOPELESS = 5  # failures in a row
LEVEL = 0.0  # of no cell: the prompts are others than those that are measured

Tell = Callable[[dict[str, Any]], None]
Gone = Callable[[Control], LoadtestError | None]  # what to raise when the server is not there any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt that is put to both arms."""

    name: str  # hash of the messages
    category: str
    messages: tuple[dict[str, str], ...]


def wanted_in_run(prepared: Prepared, identities: Mapping[str, Identity]) -> int:
    """Return by how many prompts a run compares answers: as set; else none on simulated servers or in a smoke run."""
    if len(prepared.arms) != 2:
        return 0
    if prepared.experiment.outputs.prompts is not None:
        return prepared.experiment.outputs.prompts
    simulated = bool(prepared.world) or any(identity.simulated_world for identity in identities.values())
    return 0 if simulated or prepared.options.smoke else DEFAULT_PROMPTS


def asked_of(source: SessionSource, seed: int, count: int) -> tuple[Asked, ...]:
    """Draw different prompts: the first turn of one session, the second of the next, with the scripted history."""
    found: dict[str, Asked] = {}
    for number in range(TRIES * count):
        if len(found) == count:
            break
        session = source.session(SessionKey(seed=seed, level=LEVEL, block=0, number=number))
        turns = session.turns[: number % len(session.turns) + 1]
        messages = [{"role": "system", "content": session.system}] if session.system else []
        for turn in turns:
            messages.append({"role": "user", "content": turn.user})
            if turn is not turns[-1]:
                messages.append({"role": "assistant", "content": turn.assistant})
        messages = [dict(message) for message in turns[-1].messages] or messages  # a logged turn is a whole request
        name = blake2b(orjson.dumps(messages), digest_size=8).hexdigest()
        found.setdefault(name, Asked(name=name, category=turns[-1].category, messages=tuple(messages)))
    return tuple(found.values())


class Collector:
    """Puts the prompts to each arm the first time that it is met, and writes the comparison after the last."""

    def __init__(self, asked: Sequence[Asked], arms: Sequence[str], experiment: Experiment, folder: Path, run_id: str,
                 tell: Tell, stopped: Callable[[], bool] = lambda: False) -> None:  # fmt: skip
        """Send nothing yet. Without prompts, or where the comparison stands already, nothing is ever sent."""
        self._asked, self._arms, self._experiment, self._run_id = tuple(asked), tuple(arms), experiment, run_id
        self._path, self._tell, self._stopped = folder / FILE, tell, stopped
        self._answers: dict[str, list[list[Answered]]] = {}  # arm → for each prompt its answers
        self._with_ids: dict[str, bool] = {}  # arm → whether it takes return_token_ids
        if self._path.exists() or len(self._arms) < 2:
            self._asked = ()

    def spare(self) -> None:
        """Ask nothing after all, unless it was asked for: the servers turned out to be simulated ones."""
        if self._experiment.outputs.prompts is None:
            self._asked = ()

    def collect(self, control: Control, arm: Arm, *, salted: bool, gone: Gone) -> None:
        """Ask an arm, which must be idle; a server that fails is noted, not raised.

        Raises what `gone` returns when it was not there to the end: its answers are then left out, and asked for again
        when the run is gone on with.
        """
        if not self._asked or arm.name not in self._arms or arm.name in self._answers:
            return
        passes = 2 if arm.name == self._arms[0] or self._experiment.generation.temperature > 0 else 1
        self._tell({"event": "outputs_start", "arm": arm.name, "prompts": len(self._asked), "passes": passes})
        rounds = [list(self._pass(control, arm, number, salted=salted)) for number in range(passes)]
        if self._stopped():
            return
        if (error := gone(control)) is not None:
            raise error
        self._answers[arm.name] = [list(own) for own in zip(*rounds, strict=True)]
        if len(self._answers) == len(self._arms):
            self._write()

    def _pass(self, control: Control, arm: Arm, number: int, *, salted: bool) -> Iterator[Answered]:
        """Yield an arm's answers to all prompts; a salt of each pass's own keeps the second from the first's cache."""
        failed = 0
        for asked in self._asked:
            if self._stopped() or failed >= HOPELESS:
                yield Answered(arm=arm.name, number=number, error="not sent")
                continue
            salt = f"{self._run_id}-outputs-{number}" if salted else None
            answer = self._send(control, arm, asked, number, salt)
            failed = failed + 1 if answer.error else 0
            yield answer

    def _send(self, control: Control, arm: Arm, asked: Asked, number: int, salt: str | None) -> Answered:
        with_ids = self._with_ids.get(arm.name, True)
        body = self._body(arm, asked, number, salt, with_ids=with_ids)
        try:
            answer = control.fetch(CHAT_PATH, self._experiment.limits.total_s, body)
            if answer.status == 400 and arm.name not in self._with_ids:  # some servers refuse fields they do not know
                self._with_ids[arm.name] = False
                return self._send(control, arm, asked, number, salt)
            self._with_ids.setdefault(arm.name, with_ids)
            data = answer.object()
            if data is None:
                raise ValueError("no JSON object" if answer.status == 200 else f"HTTP {answer.status}")
            return read_answer(arm.name, number, data)
        except (NoAnswer, ValueError) as error:
            return Answered(arm=arm.name, number=number, error=control.without_secrets(str(error))[:200])

    def _body(self, arm: Arm, asked: Asked, number: int, salt: str | None, *, with_ids: bool) -> dict[str, Any]:
        """Return the body of a whole answer; where sampling is seeded, each answer of an arm has a seed of its own."""
        generation = self._experiment.generation
        if generation.seed is not None and generation.temperature > 0:
            generation = replace(generation, seed=generation.seed + number)
        limit = min(generation.max_tokens, self._experiment.outputs.max_tokens)
        count = "ids" if with_ids else "none"
        body: dict[str, Any] = orjson.loads(chat_body(arm.model, asked.messages, generation, limit, salt, count))
        body.pop("stream_options", None)
        return body | {"stream": False}

    def _write(self) -> None:
        """Write one line for each prompt, the baseline's answers first; the file is whole or not there."""
        keep = self._experiment.outputs.keep_text
        part = self._path.with_name(self._path.name + ".part")
        part.unlink(missing_ok=True)
        writer = LineWriter(part, PRIVATE) if keep else LineWriter(part)
        for place, asked in enumerate(self._asked):
            answers = [answer for arm in self._arms for answer in self._answers[arm][place]]
            writer.write({"prompt": asked.name, "category": asked.category, **compared(answers, keep_text=keep)})
        writer.close()
        part.replace(self._path)
        self._asked = ()
        self._answers.clear()  # the texts are let go


def main(arguments: Sequence[str]) -> int:
    """Print the prompts of a scenario as JSON: `python -m loadtest.drive.outputs SCENARIO SEED COUNT`.

    A process of its own, because a scenario brings Locust, and Locust changes the process that imports it.
    """
    from loadtest.drive.loading import load_user_class

    try:
        source = getattr(load_user_class(Path(arguments[0])), "source", None)
        if source is None:
            raise UsageError(f"{arguments[0]} names no source of prompts to compare answers by; give --prompts FILE.")
        print(json.dumps([asdict(one) for one in asked_of(source, int(arguments[1]), int(arguments[2]))]))  # noqa: T201  # the parent reads it
    except LoadtestError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
