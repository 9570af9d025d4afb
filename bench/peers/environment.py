"""A virtual environment for a peer, made when it is first wanted and kept.

Law of this module: a peer is never a dependency of refold's; its version is named here.
"""

import subprocess
import sys
from pathlib import Path

from refold.local.pair import local_folder

PEERS = {"dbos": "dbos==3.4.0"}


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment.

    Raises:
        subprocess.CalledProcessError: It cannot be made: there is no way to the registry.
    """
    folder = local_folder() / "peers" / PEERS[name].replace("==", "-")
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([str(python), *install, PEERS[name]], check=True)
        ready.touch()
    return python
