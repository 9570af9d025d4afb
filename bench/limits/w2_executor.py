"""W2's executor as a bare loop: commands in, answers out, exactly once, and no ledger.

Law of this module: no import of refold; plain code, fastavro both ways, Python's default garbage
collector. What it does outside it would do again after a crash: it is what broker, client and
format cost, not a way to call anybody.
"""

import argparse
import signal
import time

from bench.limits import clients, w2_wire, wire


def arguments(purpose: str) -> argparse.Namespace:
    """The arguments of W2's two loops."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--name", required=True, help="group and transactional id of this run")
    parser.add_argument("--batch", type=int, default=5000, help="records a transaction at most")
    return parser.parse_args()


def ended_by_signal() -> list[int]:
    """A list that is no longer empty after SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    return ended


def loop(options: argparse.Namespace) -> None:
    """Consume, decode, answer, encode, produce, commit, until SIGTERM."""
    ended = ended_by_signal()
    source = clients.consumer(options)
    commands = w2_wire.commands_topic(options.namespace)
    source.subscribe([commands])
    sink = clients.producer(options)
    while not ended:
        batch = clients.next_batch(source, options.batch)
        if not batch:
            continue
        sink.begin_transaction()
        offsets: dict[int, int] = {}
        for message in batch:
            headers = dict(message.headers())
            command = wire.decode(w2_wire.DO, message.value())
            answer = {"receipt": f"receipt-{command['item']}", "step": command["step"]}
            key = headers["idempotency-key"].decode()
            sink.produce(
                headers["ce_replyto"].decode(),
                wire.encode(w2_wire.DID, answer),
                message.key(),
                headers=w2_wire.answer_headers(key, time.time_ns() // 1_000_000),
            )
            offsets[message.partition()] = message.offset() + 1
        clients.commit(source, sink, commands, offsets)
    source.close()


if __name__ == "__main__":
    loop(arguments("W2's executor"))
