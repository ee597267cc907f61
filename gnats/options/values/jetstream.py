"""The options of JetStream (jetstream.go): the jetstream block, and the configuration that a server derives.

Sizes are bytes, durations seconds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from gnats.core.subjects.subject import valid_subject
from gnats.errors import OptionError, ServerError
from gnats.go.text import SECOND, quote
from gnats.options.values.limits import JSLimitOpts
from gnats.system.paths import system_path

STORE_DIR = "jetstream"
"""The directory of all streams, inside the configured one."""
CHACHA, AES = "chacha", "aes"
DYNAMIC = -1
"""Three quarters of the machine's memory, or of the free disk space."""
REQUEST_QUEUE_LIMIT = 10_000
SYNC_INTERVAL = 120.0

_DEFAULT_MAX_MEMORY = 256 << 20
_DEFAULT_MAX_STORE = 1 << 40
_NOT_IN_NAMES = frozenset(" \t\r\n\f.*>")


@dataclass(frozen=True, slots=True)
class JetStreamOptions:
    """The jetstream block of a server."""

    enabled: bool = False
    store_dir: str = ""
    """The directory that contains `jetstream/`; "": `nats` in the directory for temporary files."""
    strict: bool = True
    """Refuse requests with unknown fields."""
    sync_interval: float = SYNC_INTERVAL
    """Seconds between background syncs of a store."""
    sync_always: bool = False
    """Acknowledge a message only when it has been synced to the disk."""
    max_memory: int = DYNAMIC
    """Bytes that all memory streams may have."""
    max_store: int = DYNAMIC
    """Bytes that all file streams may have."""
    domain: str = ""
    key: str = field(default="", repr=False)
    """The key that stores are encrypted with; "": no encryption."""
    prev_key: str = field(default="", repr=False)
    """The key of stores that were encrypted before `key` was configured; "": no other key."""
    cipher: str = CHACHA
    """CHACHA or AES."""
    unique_tag: str = ""
    extension_hint: str = ""
    """NO_EXTEND or WILL_EXTEND: whether it extends the domain of a cluster that its leaf nodes reach."""
    meta_compact: int = 0
    """Entries of a cluster's decisions above which a snapshot takes their place; 0: at any number."""
    meta_compact_size: int = 0
    """The same in bytes."""
    meta_compact_sync: bool = False
    """Whether the snapshot is made at once, and not in a thread."""
    request_queue_limit: int = REQUEST_QUEUE_LIMIT
    """Requests to the API that may wait, without those for information."""
    info_queue_limit: int = 0
    """Requests for information that may wait; 0: request_queue_limit."""
    limits: JSLimitOpts = JSLimitOpts()

    def validate(self) -> None:
        """Check the domain (validateJetStreamOptions). Raises OptionError."""
        if not self.domain:
            return
        subject = f"$JS.{self.domain}.API.>"
        if not valid_subject(subject):
            raise OptionError(f"invalid domain name: derived {quote(subject)} is not a valid subject")
        if _NOT_IN_NAMES & set(self.domain):
            raise OptionError("invalid domain name: may not contain ., * or >")


NO_EXTEND, WILL_EXTEND = "no_extend", "will_extend"


def check_jetstream(value: object) -> None:
    """Check the type of the option. Raises OptionError."""
    if not isinstance(value, JetStreamOptions):
        wanted = "JetStreamOptions(enabled=True), of gnats.options.values.jetstream,"
        raise OptionError(f"jetstream takes options such as {wanted} not {value!r:.100}")


@dataclass(slots=True)
class JetStreamConfig:
    """The sizes and the directory that a server uses, after dynamic values are resolved (JetStreamConfig)."""

    max_memory: int
    max_store: int
    store_dir: str
    temporary: bool
    """True if no store directory was configured."""
    options: JetStreamOptions

    @classmethod
    def of(cls, options: JetStreamOptions) -> JetStreamConfig:
        """Resolve dynamic sizes and the directory."""
        base = options.store_dir
        directory = Path(base or _temporary_directory()) / STORE_DIR
        max_memory, max_store = options.max_memory, options.max_store
        if max_store < 0:
            max_store = _disk_available(directory)
        if max_memory < 0:
            max_memory = _memory_available()
        return cls(max_memory, max_store, str(directory), not base, options)

    def json(self) -> dict[str, object]:
        """Return the members of `config` in /jsz and /varz."""
        options = self.options
        members: dict[str, object] = {
            "max_memory": self.max_memory,
            "max_storage": self.max_store,
            "store_dir": self.store_dir,
        }
        optional = {
            "sync_interval": round(options.sync_interval * SECOND),
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
    """Create the directory if it is missing, and check that it is writable. Raises ServerError.

    Part of enableJetStream.
    """
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
    """Return three quarters of the free space of the file system that holds, or will hold, the directory."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    try:
        found = os.statvfs(directory)
    except OSError:
        return _DEFAULT_MAX_STORE
    return found.f_bavail * found.f_frsize // 4 * 3


def _memory_available() -> int:
    """Return three quarters of the machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 * 3
    except (OSError, ValueError):
        return _DEFAULT_MAX_MEMORY
