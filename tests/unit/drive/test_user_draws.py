"""What a user draws depends on its session alone, Locust's own task choice and waiting included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import random
import locust
from loadtest.drive.user import LLMUser, _SeededTasks
from loadtest.settings import Experiment, Load
from loadtest.workload.sessions import SessionKey

class Cell:
    opened = None
    experiment = Experiment(load=Load(think_time=2.0))
    def new_user(self): return 1, 0.0
    def new_client(self): return None
    def session_key(self, user, turn_round): return SessionKey(seed=1, level=4, block=0, number=user + 4 * turn_round)

class Environment:
    loadtest_cell = Cell()

class Mine(LLMUser):
    wait_time = locust.between(1, 5)
    @locust.task(2)
    def often(self): pass
    @locust.task
    def seldom(self): pass

def draws(seed):
    random.seed(seed)  # what else in the process draws must not matter
    user = Mine(Environment())
    tasks = _SeededTasks(user)
    chosen = []
    for _ in range(20):
        chosen.append(tasks.get_next_task().__name__)
        tasks.wait()
    after = random.random()
    random.seed(seed)
    assert after == random.random(), "the scenario's own randomness must be left as it was"
    return chosen, user._think_s

first, second = draws(3), draws(4)
assert first == second, (first, second)
assert set(first[0]) == {"often", "seldom"}
assert 20 * 2 * 1 < first[1] < 20 * 2 * 5, first[1]
print("fine")
"""


def test_task_choice_and_waits_are_the_same_in_both_arms():
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "fine", done.stderr
