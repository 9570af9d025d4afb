"""The end of a process that serves."""

import signal
import subprocess
import sys

CHILD = """
import atexit, signal, threading
from refold.cli.process import serve

told = threading.Event()

def run():
    print("runs", flush=True)
    told.wait()

def last():
    # Python puts back the default, which kills, in place of a handler of Python's own.
    heeded = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    print("goes", *(each is signal.SIG_IGN for each in heeded), flush=True)

atexit.register(last)
serve(run, told.set, 20.0)
"""


def test_a_second_signal_in_the_moment_of_the_end_leaves_it_a_clean_one() -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "runs\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "goes True True\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
