"""The options of JetStream (jetstream.go): the jetstream block, and what a server makes of it.

Sizes are bytes, durations seconds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from gnats.core.subjects.subject import valid_subject
from gnats.errors import OptionError, ServerError
from gnats.go.text import quote
from gnats.options.values.limits import JSLimitOpts
from gnats.system.paths import system_path

STORE_DIR = "jetstream"
"""What is appended to the directory that is configured."""
CHACHA, AES = "chacha", "aes"
DYNAMIC = -1
"""As large a share of what the machine has as seems right."""
REQUEST_QUEUE_LIMIT = 10_000
SYNC_INTERVAL = 120.0

_DEFAULT_MAX_MEMORY = 256 << 20
_DEFAULT_MAX_STORE = 1 << 40
_NOT_IN_NAMES = frozenset(" \t\r\n\f.*>")


@dataclass(frozen=True, slots=True)
class JetStreamOptions:
    enabled: bool = False
    store_dir: str = ""
    """Where `jetstream/` is; "": the directory for temporary files."""
    strict: bool = True
    """Requests with fields that are not known are refused."""
    sync_interval: float = SYNC_INTERVAL
    sync_always: bool = False
    """Acknowledge what has been synced to the disk only."""
    max_memory: int = DYNAMIC
    max_store: int = DYNAMIC
    domain: str = ""
    key: str = field(default="", repr=False)
    """What stores are encrypted with; "": they are not."""
    prev_key: str = field(default="", repr=False)
    cipher: str = CHACHA
    unique_tag: str = ""
    extension_hint: str = ""
    """Of meaning in clusters."""
    request_queue_limit: int = REQUEST_QUEUE_LIMIT
    info_queue_limit: int = 0
    """0: as request_queue_limit."""
    limits: JSLimitOpts = JSLimitOpts()

    def validate(self) -> None:
        """Raise OptionError for a domain that cannot be one (validateJetStreamOptions)."""
        if not self.domain:
            return
        subject = f"$JS.{self.domain}.API.>"
        if not valid_subject(subject):
            raise OptionError(f"invalid domain name: derived {quote(subject)} is not a valid subject")
        if _NOT_IN_NAMES & set(self.domain):
            raise OptionError("invalid domain name: may not contain ., * or >")


@dataclass(slots=True)
class JetStreamConfig:
    """What a server has, once it is known (JetStreamConfig): sizes and the directory are decided."""

    max_memory: int
    max_store: int
    store_dir: str
    temporary: bool
    """Nobody has said where to store."""
    options: JetStreamOptions

    @classmethod
    def of(cls, options: JetStreamOptions) -> JetStreamConfig:
        """Decides what is dynamic; the directory may be made for that. Raises ServerError."""
        base = options.store_dir
        directory = Path(base or _temporary_directory()) / STORE_DIR
        max_memory, max_store = options.max_memory, options.max_store
        if max_store < 0:
            max_store = _disk_available(directory)
        if max_memory < 0:
            max_memory = _memory_available()
        return cls(max_memory, max_store, str(directory), not base, options)

    def json(self) -> dict[str, object]:
        """As jsz and varz have it."""
        options = self.options
        members: dict[str, object] = {
            "max_memory": self.max_memory,
            "max_storage": self.max_store,
            "store_dir": self.store_dir,
        }
        optional = {
            "sync_interval": round(options.sync_interval * 1e9),
            "sync_always": options.sync_always,
            "domain": options.domain,
            "compress_ok": options.max_memory > 0 and options.max_store > 0,
            "unique_tag": options.unique_tag,
            "strict": options.strict,
        }
        return members | {name: value for name, value in optional.items() if value}


def _temporary_directory() -> Path:
    import tempfile

    return Path(tempfile.gettempdir()) / "nats"


def make_directory(path: Path) -> None:
    """Have a directory that can be written to (of enableJetStream). Raises ServerError."""
    try:
        system_path(path)
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise ServerError("storage directory is not a directory") from None
    except OSError as exc:
        raise ServerError(f"could not create storage directory - {exc.strerror}") from exc
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=path, prefix="_test_"):
            pass
    except OSError:
        raise ServerError("storage directory is not writable") from None


def _disk_available(directory: Path) -> int:
    """Three quarters of what is free where the directory is, or will be."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    try:
        found = os.statvfs(directory)
    except OSError:
        return _DEFAULT_MAX_STORE
    return found.f_bavail * found.f_frsize // 4 * 3


def _memory_available() -> int:
    """Three quarters of the machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 * 3
    except (OSError, ValueError):
        return _DEFAULT_MAX_MEMORY
