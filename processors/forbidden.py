"""What the fold may not touch, by name, and what refold offers instead.

Law of this module: tables and their lookup. Static names serve `purity.faults`, the names of
running calls serve `purity.guard`.
"""

from enum import StrEnum
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Final


class Kind(StrEnum):
    """What is wrong, worded to follow the name of a function."""

    CLOCK = "reads the clock"
    CHANCE = "draws at random"
    ID = "makes a random id"
    ENVIRONMENT = "reads the environment"
    FILE = "reads or writes files"
    SYSTEM = "asks the operating system"
    NETWORK = "uses the network"
    PROCESS = "starts processes"
    THREAD = "uses threads"
    ASYNC = "is asynchronous"
    GLOBAL = "uses what may change"
    HASH = "depends on the hash seed or on addresses"
    ORDER = "depends on set order"
    LOCALE = "depends on the locale"
    ERROR_TEXT = "uses the text of an exception"
    OUTPUT = "prints or logs"
    CODE = "runs code from text"
    IMPORT = "imports while it folds"


_EVENT: Final = "Let an upstream service or an executor put it on the log as an event."
_OUTSIDE: Final = "Send a command and let an executor do it; its answer comes as an event."
CURES: Final = {
    Kind.CLOCK: "Use step.time, or a field of the event; a zone is data too.",
    Kind.CHANCE: "Use step.random(): the same number at every replay.",
    Kind.ID: "Use step.new_id(): the same id at every replay.",
    Kind.ENVIRONMENT: _EVENT,
    Kind.FILE: _OUTSIDE,
    Kind.SYSTEM: _EVENT,
    Kind.NETWORK: _OUTSIDE,
    Kind.PROCESS: _OUTSIDE,
    Kind.THREAD: "Keep it a plain function of context and event.",
    Kind.ASYNC: "Keep it a plain function; " + _OUTSIDE[0].lower() + _OUTSIDE[1:],
    Kind.GLOBAL: "Keep it in the context, or make it a tuple, frozenset, MappingProxyType or "
    "frozen class.",
    Kind.HASH: "Use hashlib over bytes, or a field of the event.",
    Kind.ORDER: "Put sorted() around the set.",
    Kind.LOCALE: "Format with fixed rules, or leave it to whoever shows it.",
    Kind.ERROR_TEXT: "Store a code of your own: the text differs between Python versions.",
    Kind.OUTPUT: "Leave it out: refold logs each step; a replay would say it again.",
    Kind.CODE: "Write it as code.",
    Kind.IMPORT: "Import it at the top of the module.",
}

_NAMES: Final = {
    "time": Kind.CLOCK,
    "datetime.datetime.now": Kind.CLOCK,
    "datetime.datetime.utcnow": Kind.CLOCK,
    "datetime.datetime.today": Kind.CLOCK,
    "datetime.date.today": Kind.CLOCK,
    "random": Kind.CHANCE,
    "secrets": Kind.CHANCE,
    "numpy.random": Kind.CHANCE,
    "os.urandom": Kind.CHANCE,
    "os.getrandom": Kind.CHANCE,
    "uuid.uuid1": Kind.ID,
    "uuid.uuid4": Kind.ID,
    "uuid.uuid6": Kind.ID,
    "uuid.uuid7": Kind.ID,
    "uuid.getnode": Kind.ID,
    "os.environ": Kind.ENVIRONMENT,
    "os.environb": Kind.ENVIRONMENT,
    "os._Environ": Kind.ENVIRONMENT,
    "os.getenv": Kind.ENVIRONMENT,
    "os": Kind.SYSTEM,
    "platform": Kind.SYSTEM,
    "getpass": Kind.SYSTEM,
    "pwd": Kind.SYSTEM,
    "resource": Kind.SYSTEM,
    "gc": Kind.SYSTEM,
    "sys.argv": Kind.SYSTEM,
    "sys.path": Kind.SYSTEM,
    "sys.modules": Kind.SYSTEM,
    "sys.platform": Kind.SYSTEM,
    "sys.version": Kind.SYSTEM,
    "sys.version_info": Kind.SYSTEM,
    "sys.executable": Kind.SYSTEM,
    "sys.exc_info": Kind.ERROR_TEXT,
    "traceback": Kind.ERROR_TEXT,
    "sys.stdin": Kind.FILE,
    "sys.stdout": Kind.OUTPUT,
    "sys.stderr": Kind.OUTPUT,
    "io.open": Kind.FILE,
    "io.FileIO": Kind.FILE,
    "pathlib.Path": Kind.FILE,
    "pathlib.PosixPath": Kind.FILE,
    "tempfile": Kind.FILE,
    "shutil": Kind.FILE,
    "glob": Kind.FILE,
    "fileinput": Kind.FILE,
    "sqlite3": Kind.FILE,
    "builtins.input": Kind.FILE,
    "os.path.exists": Kind.FILE,
    "os.path.isfile": Kind.FILE,
    "os.path.isdir": Kind.FILE,
    "os.path.getsize": Kind.FILE,
    "os.path.getmtime": Kind.FILE,
    "os.path.abspath": Kind.SYSTEM,
    "os.path.realpath": Kind.SYSTEM,
    "os.path.expanduser": Kind.SYSTEM,
    "os.path.expandvars": Kind.ENVIRONMENT,
    "os.path.relpath": Kind.SYSTEM,
    "socket": Kind.NETWORK,
    "ssl": Kind.NETWORK,
    "select": Kind.NETWORK,
    "selectors": Kind.NETWORK,
    "http.client": Kind.NETWORK,
    "urllib.request": Kind.NETWORK,
    "smtplib": Kind.NETWORK,
    "ftplib": Kind.NETWORK,
    "requests": Kind.NETWORK,
    "httpx": Kind.NETWORK,
    "aiohttp": Kind.NETWORK,
    "urllib3": Kind.NETWORK,
    "psycopg": Kind.NETWORK,
    "sqlalchemy": Kind.NETWORK,
    "redis": Kind.NETWORK,
    "confluent_kafka": Kind.NETWORK,
    "subprocess": Kind.PROCESS,
    "multiprocessing": Kind.PROCESS,
    "signal": Kind.PROCESS,
    "threading": Kind.THREAD,
    "thread": Kind.THREAD,
    "queue": Kind.THREAD,
    "concurrent": Kind.THREAD,
    "asyncio": Kind.ASYNC,
    "anyio": Kind.ASYNC,
    "trio": Kind.ASYNC,
    "contextvars": Kind.GLOBAL,
    "weakref": Kind.GLOBAL,
    "builtins.globals": Kind.GLOBAL,
    "builtins.hash": Kind.HASH,
    "builtins.id": Kind.HASH,
    "locale": Kind.LOCALE,
    "gettext": Kind.LOCALE,
    "calendar.month_name": Kind.LOCALE,
    "calendar.month_abbr": Kind.LOCALE,
    "calendar.day_name": Kind.LOCALE,
    "calendar.day_abbr": Kind.LOCALE,
    "builtins.print": Kind.OUTPUT,
    "logging": Kind.OUTPUT,
    "structlog": Kind.OUTPUT,
    "loguru": Kind.OUTPUT,
    "warnings": Kind.OUTPUT,
    "builtins.eval": Kind.CODE,
    "builtins.exec": Kind.CODE,
    "builtins.compile": Kind.CODE,
    "builtins.__import__": Kind.IMPORT,
    "importlib": Kind.IMPORT,
}
_ALLOWED: Final = frozenset({"os.path", "os.fspath", "os.sep", "os.PathLike", "time.struct_time"})
"""Parts of a forbidden module that compute and touch nothing."""
_ALIASES: Final = {
    "posix": "os",
    "posixpath": "os.path",
    "ntpath": "os.path",
    "genericpath": "os.path",
    "nt": "os",
}


def kind_of(thing: object, rest: tuple[str, ...]) -> Kind | None:
    """What kind of forbidden thing a resolved dotted name is; None if it is fine.

    Args:
        thing: The object that a name stands for.
        rest: Attributes read from it that are not followed: (`now`,) for `datetime.now`.
    """
    parts = [*_dotted(thing).split("."), *rest]
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in _ALLOWED:
            return None
        if name in _NAMES:
            bare = length == len(parts) and isinstance(thing, ModuleType)
            return None if bare else _NAMES[name]
    return None


def _dotted(thing: object) -> str:
    if isinstance(thing, str):
        return thing  # a module that is not loaded
    if isinstance(thing, ModuleType):
        return _public(thing.__name__)
    owner = getattr(thing, "__self__", None)
    if isinstance(thing, BuiltinFunctionType) and owner is not None:
        if isinstance(owner, ModuleType):
            return f"{_public(owner.__name__)}.{thing.__name__}"
        cls = owner if isinstance(owner, type) else type(owner)
        return f"{_public(cls.__module__)}.{cls.__qualname__}.{thing.__name__}"
    if owner is not None and not isinstance(owner, type):
        return f"{_public(type(owner).__module__)}.{getattr(thing, '__name__', '')}"
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    module = getattr(named, "__module__", None) or ""
    return f"{_public(module)}.{getattr(named, '__qualname__', '')}"


def _public(module: str) -> str:
    """`_random` is random, `posix` is os, `pathlib._local` is pathlib."""
    module = _ALIASES.get(module, module)
    parts = [part for index, part in enumerate(module.split(".")) if index == 0 or part[:1] != "_"]
    return ".".join([parts[0].lstrip("_") if parts[0] != "__main__" else parts[0], *parts[1:]])


_RUNNING_SKIP: Final = frozenset({"builtins.hash", "builtins.id", "builtins.exec", "builtins.eval"})
"""Called by Python's own machinery (dataclasses, reprs) and harmless there."""
_RUNNING_CODE: Final = {
    ("os", "_Environ.__getitem__"): Kind.ENVIRONMENT,
    ("os", "_Environ.__iter__"): Kind.ENVIRONMENT,
    ("socket", "socket.__init__"): Kind.NETWORK,
    ("subprocess", "Popen.__init__"): Kind.PROCESS,
    ("uuid", "uuid4"): Kind.ID,
    ("uuid", "uuid1"): Kind.ID,
    ("threading", "Thread.start"): Kind.THREAD,
}
_RUNNING_MODULES: Final = frozenset(
    {
        Kind.CLOCK,
        Kind.CHANCE,
        Kind.ENVIRONMENT,
        Kind.FILE,
        Kind.SYSTEM,
        Kind.NETWORK,
        Kind.PROCESS,
        Kind.THREAD,
        Kind.OUTPUT,
    }
)
_HARMLESS: Final = frozenset({"time.strptime", "time.gmtime", "time.mktime"})


def running_kind(what: object, event: str) -> Kind | None:
    """What kind of forbidden call a profiler's event shows; None if it is fine.

    Args:
        what: A code object for `call`, a built-in function for `c_call`.
        event: The profiler's event.
    """
    if event == "call" and isinstance(what, CodeType):
        file = what.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
        module = file.removesuffix(".py").removeprefix("<frozen ").removesuffix(">")
        return _RUNNING_CODE.get((module, what.co_qualname))
    if event != "c_call":
        return None
    name = _dotted(what)
    if name in _RUNNING_SKIP or name in _HARMLESS:
        return None
    kind = kind_of(what, ())
    return kind if kind in _RUNNING_MODULES else None
