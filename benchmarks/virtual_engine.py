"""Requests a second of real time that the virtual engine works off: closed loop, answers of 64 tokens, both arms."""

from __future__ import annotations

import time

from loadtest.simulate.draws import mix, uniform
from loadtest.simulate.jobs import Ask
from loadtest.simulate.virtual import VirtualServer, closed_loop
from loadtest.simulate.worlds import world

REQUESTS = 3000
ROUND_S = 30.0  # virtual seconds of one closed loop


def ask(user: int, round_: int) -> Ask:
    key = mix(7, user, round_)
    return Ask(key=key, prompt_tokens=60 + int(340 * uniform(key, 1)), output_tokens=64)


def main() -> None:
    pair = world("default")
    print(f"{'users':>5} {'arm':>12} {'requests/s':>11} {'µs/request':>11} {'mean e2e (virtual s)':>21}")
    for users in (1, 2, 4, 8, 16, 32, 64):
        for role in ("baseline", "speculative"):
            ended, latency_s, seed = 0, 0.0, 0
            began_s = time.perf_counter()
            while ended < REQUESTS:
                done = closed_loop(VirtualServer(pair.arm(role), seed), users, ROUND_S, ask)
                ended, seed = ended + len(done), seed + 1
                latency_s += sum(job.finished_s - job.arrival_s for job in done)
            took_s = time.perf_counter() - began_s
            rate, each_us = ended / took_s, took_s / ended * 1e6
            print(f"{users:>5} {role:>12} {rate:>11.0f} {each_us:>11.1f} {latency_s / ended:>21.4f}")


if __name__ == "__main__":
    main()
