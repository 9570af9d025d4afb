"""Says on what a figure was measured, without naming the machine.

Law of this module: hardware and versions only; no host name, no address, no path.
"""

import os
import platform
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("confluent-kafka", "fastavro", "msgspec", "psycopg", "pydantic")


def describe() -> dict[str, object]:
    """Processor, cores, memory, Python and the packages that matter."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def load() -> float:
    """Load average of the last minute: above the cores, only ratios mean anything."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
