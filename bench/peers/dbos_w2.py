"""W2 in DBOS: a workflow of ten durable steps, so many of them in flight in this process.

Law of this module: DBOS and the standard library only; it runs in an environment of its own
(`bench.peers.environment`). Workflow and steps are written as DBOS's documentation writes them.
Of the ways that it describes (called directly on threads, asyncio, started with a handle,
enqueued), the first was the fastest. It prints one line of JSON.
"""

import argparse
import json
import os
import threading
import time

from dbos import DBOS  # type: ignore[import-not-found]  # in an environment of its own

STEPS = 10


@DBOS.step()  # type: ignore[untyped-decorator]
def do(customer: str, item: str, step: int) -> str:
    return f"receipt-{item}"


@DBOS.workflow()  # type: ignore[untyped-decorator]
def task(customer: str, item: str, total: int) -> str:
    receipt = ""
    for number in range(1, STEPS + 1):
        receipt = do(customer, item, number)
    return receipt


class Loops:
    """So many threads, each of which runs one workflow after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._number = 0
        self._ended: list[tuple[float, float]] = []
        """When each workflow ended, and how long it took, in seconds."""
        self._wrong = 0

    def run(self) -> dict[str, float]:
        """Runs them for the time that is asked for; returns what counts."""
        threads = [threading.Thread(target=self._loop) for _ in range(self._options.in_flight)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        since = self._ended[0][0] + self._options.warm
        lives = sorted(s for at, s in self._ended if 0 <= at - since < self._options.seconds)
        return {
            "rate": len(lives) * STEPS / self._options.seconds,
            "step_p50_ms": 1000 * lives[len(lives) // 2] / STEPS if lives else 0.0,
            "cpu_s": time.process_time(),
            "workflows": len(self._ended),
            "wrong": self._wrong,
        }

    def _loop(self) -> None:
        while not self._over():
            with self._lock:
                self._number += 1
                number = self._number
            item = f"item-{number % 499:03d}"
            began = time.monotonic()
            receipt = task(f"customer-{number % 9973:05d}", item, number % 100_000 + 100)
            now = time.monotonic()
            with self._lock:
                self._wrong += receipt != f"receipt-{item}"
                self._ended.append((now, now - began))

    def _over(self) -> bool:
        asked_s = self._options.warm + self._options.seconds
        return bool(self._ended) and time.monotonic() - self._ended[0][0] > asked_s


def main() -> None:
    """Runs as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="of this process")
    parser.add_argument("--in-flight", type=int, required=True)
    parser.add_argument("--warm", type=float, default=2.0, help="seconds after the first end")
    parser.add_argument("--seconds", type=float, default=10.0, help="that count")
    options = parser.parse_args()
    DBOS(
        config={
            "name": "bench-w2",
            "system_database_url": os.environ["DBOS_SYSTEM_DATABASE_URL"],
            "executor_id": options.name,
            "application_version": "1",
            "sys_db_pool_size": max(20, options.in_flight),
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    try:
        print(json.dumps(Loops(options).run()), flush=True)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main()
