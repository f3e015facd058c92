"""How many requests a second of real time the virtual engine works off: closed loop, 64-token answers, both arms."""

from __future__ import annotations

import time

from loadtest.simulate.draws import mix, uniform
from loadtest.simulate.jobs import Ask
from loadtest.simulate.virtual import VirtualServer, closed_loop
from loadtest.simulate.worlds import world

REQUESTS = 3000


def ask(user: int, turn: int) -> Ask:
    key = mix(7, user, turn)
    return Ask(key=key, prompt_tokens=60 + int(340 * uniform(key, 1)), output_tokens=64)


def main() -> None:
    pair = world("default")
    print(f"{'users':>5} {'arm':>12} {'requests/s':>11} {'steps/s':>10} {'µs/request':>11} {'mean e2e s':>11}")
    for users in (1, 2, 4, 8, 16, 32, 64):
        for role in ("baseline", "speculative"):
            server = VirtualServer(pair.arm(role), seed=1)
            began = time.perf_counter()
            ended = 0
            latency = 0.0
            while ended < REQUESTS:
                done = closed_loop(VirtualServer(pair.arm(role), seed=ended), users, 30.0, ask)
                ended += len(done)
                latency += sum(job.finished_s - job.arrival_s for job in done)
            took = time.perf_counter() - began
            del server
            print(f"{users:>5} {role:>12} {ended / took:>11.0f} {'':>10} {took / ended * 1e6:>11.1f} {latency / ended:>11.4f}")


if __name__ == "__main__":
    main()
