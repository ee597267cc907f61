"""The archive reads the same messages from a directory as a store that opens it, after any operations."""

from __future__ import annotations

import pickle
import re
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.archive_homes import Home, Message, make_home, messages, served

from gnats.archive import Selection, StreamSource
from gnats.store.store import FileStore

SUBJECTS = [b"a", b"a.b", b"a.c", b"kv.one", b"kv.two", "ü.1".encode(), b"raw.\xff\xfe", b"r.\\xff"]
FILTERS = ["a", "a.*", "kv.>", "*.b", "none", "raw.\\xff\\xfe"]
PAYLOADS = st.binary(max_size=60) | st.just(b"x" * 1500)
HEADERS = [b"", b"", b"NATS/1.0\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nA: \xff\r\nA: \\xff\r\nB: \r\n\r\n"]


def takes(filters: list[str], subject: bytes) -> bool:
    """Return True if a filter matches the subject, or there are none."""
    for each in filters:
        raw = b"raw.\xff\xfe" if "raw" in each else each.encode()
        if re.fullmatch(re.escape(raw).replace(rb"\*", rb"[^.]+").replace(b">", b".+"), subject, re.DOTALL):
            return True
    return False


class Directory(RuleBasedStateMachine):
    """Operations on a stream: store, change, crash, scan."""

    @initialize(
        max_msgs=st.sampled_from([-1, -1, 3, 10]),
        max_bytes=st.sampled_from([-1, -1, 400, 2000]),
        per_subject=st.sampled_from([-1, -1, 1, 2]),
        cipher=st.sampled_from(["", "", "chacha", "aes"]),
        compression=st.sampled_from(["none", "s2"]),
        block_size=st.sampled_from([300, 4096]),
    )
    def begin(
        self, max_msgs: int, max_bytes: int, per_subject: int, cipher: str, compression: str, block_size: int
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gnats-archive-"))
        limits = {"max_msgs": max_msgs, "max_bytes": max_bytes, "max_msgs_per_subject": per_subject}
        self.home: Home = make_home(self.folder / "S", cipher, **limits)
        self.options = {"compression": compression, "block_size": block_size}
        self.store = self.home.open(**self.options)
        self.copies = 0
        self.now = 1_000_000_000

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    @rule(subject=st.sampled_from(SUBJECTS), payload=PAYLOADS, hdr=st.sampled_from(HEADERS))
    def publish(self, subject: bytes, payload: bytes, hdr: bytes) -> None:
        self.now += 1001
        self.store.store_msg(subject, payload, hdr, ts=self.now)

    @rule(n=st.integers(5, 40), data=st.data())
    def publish_many(self, n: int, data: st.DataObject) -> None:
        for i in range(n):
            self.publish(SUBJECTS[i % len(SUBJECTS)], b"m" * (i % 50), HEADERS[i % len(HEADERS)])

    @rule(back=st.integers(0, 60), erase=st.booleans())
    def remove(self, back: int, erase: bool) -> None:
        seq = self.store.state().last_seq - back
        if seq > 0:
            self.store.remove_msg(seq, erase)

    @rule(subject=st.sampled_from([b"", b"kv.one", b"a.*"]), keep=st.integers(0, 2))
    def purge(self, subject: bytes, keep: int) -> None:
        self.store.purge_msgs(subject, keep=keep)

    @rule(back=st.integers(0, 20))
    def compact(self, back: int) -> None:
        self.store.compact_to(max(self.store.state().last_seq - back, 0))

    @rule(back=st.integers(0, 5))
    def truncate(self, back: int) -> None:
        self.store.truncate_to(max(self.store.state().last_seq - back, 0))

    @rule(n=st.integers(1, 5))
    def skip(self, n: int) -> None:
        self.store.skip(n=n)

    @rule()
    def rewrite(self) -> None:
        self.store.maintain()

    @rule()
    def write_index(self) -> None:
        self.store.write_state(force=True)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.home.open(**self.options)

    @rule()
    def crash(self) -> None:
        index = self.home.path / "msgs" / "index.db"
        index.unlink(missing_ok=True)

    def recovered(self) -> list[Message]:
        self.copies += 1
        copy = self.folder / str(self.copies)
        shutil.copytree(self.home.path, copy)
        store: FileStore = self.home.open(copy, **self.options)
        found = served(store)
        state = store.state()
        store.close()
        shutil.rmtree(copy)
        self.expected_state = state
        return found

    @invariant()
    def reads_what_is_served(self) -> None:
        if not hasattr(self, "store"):
            return
        self.store.flush_pending()
        expected = self.recovered()
        found, scan = self.home.scan(batch_rows=7)
        assert found == expected
        assert not scan.damage
        assert scan.tail is None
        assert (scan.messages, scan.bytes) == (len(found), sum(len(message[4]) for message in found))

    @rule(
        first=st.integers(0, 30),
        last=st.integers(0, 30),
        start=st.integers(0, 50),
        end=st.integers(0, 50),
        filters=st.lists(st.sampled_from(FILTERS), max_size=2),
    )
    def selections(self, first: int, last: int, start: int, end: int, filters: list[str]) -> None:
        self.store.flush_pending()
        found, _ = self.home.scan()
        state = self.store.state()
        low, high = max(state.last_seq - first, 1), max(state.last_seq - last, 0)
        since, until = self.now - start * 1001, self.now - end * 1001
        selection = Selection(low, high, since, until, tuple(filters))
        snapshot = pickle.loads(pickle.dumps(StreamSource(self.home.stream, self.home.keys).snapshot()))
        expected = [message for message in found if low <= message[0] <= high and since <= message[1] < until]
        if filters:
            expected = [message for message in expected if takes(filters, message[2])]
        assert list(messages(snapshot.scan(selection))) == expected
        # Block by block, as tasks do.
        each = [
            message
            for block in snapshot.select(selection)
            for message in messages(snapshot.part([block]).scan(selection))
        ]
        assert each == expected


Directory.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestDirectory = Directory.TestCase
