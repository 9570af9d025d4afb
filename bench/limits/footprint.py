"""What the contexts of W1 weigh by themselves: resident bytes of each, held in a list.

Law of this module: no import of refold. Prints one line of JSON.
"""

import argparse
import json
from pathlib import Path

from bench.limits import codecs, wire


def rss_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main() -> None:
    """Builds the contexts as a decoder would, with strings of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, required=True)
    count = parser.parse_args().count
    held: list[codecs.Order | None] = [None] * count
    before = rss_bytes()
    for number in range(count):
        event = codecs.order_placed(wire.placed(number).value)
        held[number] = codecs.Order(event.customer, event.item, event.quantity, event.total)
    print(json.dumps({"context_bytes": (rss_bytes() - before) / count}))


if __name__ == "__main__":
    main()
