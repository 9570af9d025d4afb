"""The life of a process that serves until it is told to stop.

Law of this module: the first SIGTERM or Ctrl-C asks for a clean end, those behind it change
nothing: a clean end stays one, also in the moment in which the interpreter goes.
"""

import faulthandler
import gc
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
SWITCH_S: Final = 0.0005
"""How long a thread that computes keeps the interpreter from one that waits for it."""


def many_records() -> None:
    """Set the collector for records that are many, long-lived and free of cycles.

    Its default would walk them again and again (docs/figures.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


def serve(run: Callable[[], None], stop: Callable[[], None], end_s: float) -> None:
    """Run until stopped.

    Args:
        run: Serves until `stop` was called.
        stop: Asks for the end; called by a signal handler.
        end_s: Seconds after which a thread that never ends does not keep the process any more.
    """

    def ask(number: int, frame: FrameType | None) -> None:
        stop()

    for each in _SIGNALS:
        signal.signal(each, ask)
    many_records()
    sys.setswitchinterval(SWITCH_S)
    run()
    for each in _SIGNALS:  # the interpreter would put back what kills
        signal.signal(each, signal.SIG_IGN)
    faulthandler.dump_traceback_later(end_s, exit=True)
