"""The ledger's divisor: the same SQL with the same values in the same order, through psycopg alone.

Law of this module: no import of refold. It executes the statements of a file, one transaction
after the other, with the values packed beforehand; it takes their rows, and builds nothing from
them: what network, client and server cost by themselves. It prints one line of JSON.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format


class Packed(bytes):
    """An array in binary format, which is sent as it is."""


def packed(kind: int) -> Any:
    """The class of arrays of one type, by the type's number."""
    made = type(f"Packed{kind}", (Packed,), {})
    own = {"oid": kind, "format": Format.BINARY, "dump": lambda _, value: bytes(value)}
    psycopg.adapters.register_dumper(made, type(f"Dumper{kind}", (Dumper,), own))
    return made


def replay(dsn: str, file: Path) -> float:
    """Executes all statements on one connection; returns the seconds that it took."""
    statements = msgspec.msgpack.decode(file.read_bytes())
    kinds: dict[int, Any] = {}
    for statement in statements:
        for name, value in statement[1].items() if isinstance(statement[1], dict) else ():
            if isinstance(value, dict):
                number = value["array"]
                kinds[number] = kinds.get(number) or packed(number)
                statement[1][name] = kinds[number](value["data"])
    with psycopg.connect(dsn, autocommit=True) as connection:
        began = time.perf_counter()
        for text, values, prepare, binary in statements:
            cursor = connection.execute(text, values, prepare=prepare, binary=binary)
            if cursor.description is not None:
                cursor.fetchall()
        return time.perf_counter() - began


def main() -> None:
    """Runs as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args()
    print(json.dumps({"seconds": replay(options.dsn, options.file)}), flush=True)


if __name__ == "__main__":
    main()
