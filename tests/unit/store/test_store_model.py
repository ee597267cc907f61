"""A store behaves like a dict of messages, through crashes, lost indexes and rewritten blocks."""

import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gnats.go.text import SECOND
from gnats.store.store import FileStore, MemStore, StoreFailure

SUBJECTS = [b"a", b"a.b", b"a.c", b"b.b", b"b.c.d", b"kv.one", b"kv.two"]
FILTERS = [b">", b"a", b"a.*", b"*.b", b"b.>", b"kv.one", b"none", b"kv.*"]

Message = tuple[int, bytes, bytes, bytes]


def matches(pattern: bytes, subject: bytes) -> bool:
    """Return True if a pattern matches a subject, token by token."""
    want, have = pattern.split(b"."), subject.split(b".")
    for i, token in enumerate(want):
        if token == b">":
            return len(have) > i
        if i >= len(have) or token not in (b"*", have[i]):
            return False
    return len(have) == len(want)


class StoreMachine(RuleBasedStateMachine):
    """A file store beside a dict."""

    in_memory: ClassVar[bool] = False

    @initialize(
        block_size=st.sampled_from([200, 600, 4096]),
        max_msgs=st.sampled_from([-1, -1, 3, 10]),
        per_subject=st.sampled_from([-1, -1, 1, 2]),
    )
    def open(self, block_size: int, max_msgs: int, per_subject: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gnats-model-"))
        self.at = self.folder / "0"
        self.at.mkdir()
        self.copies = 0
        self.block_size = block_size
        self.limits = {"max_msgs": max_msgs, "max_msgs_per_subject": per_subject}
        self.now = SECOND
        self.model: dict[int, Message] = {}
        self.stored: dict[int, Message] = {}
        self.last = 0
        self.said: list[str] = []
        self.store = self.opened()

    def opened(self) -> MemStore | FileStore:
        if self.in_memory:
            return MemStore("S", block_size=self.block_size, **self.limits)
        return FileStore(str(self.at), "S", block_size=self.block_size, warn=self.said.append, **self.limits)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    def enforce(self) -> None:
        per = self.limits["max_msgs_per_subject"]
        if per > 0:
            for subject in SUBJECTS:
                own = [seq for seq, msg in self.model.items() if msg[1] == subject]
                for seq in sorted(own)[: max(0, len(own) - per)]:
                    del self.model[seq]
        most = self.limits["max_msgs"]
        if most > 0:
            for seq in sorted(self.model)[: max(0, len(self.model) - most)]:
                del self.model[seq]

    # --- operations ---

    @rule(
        subject=st.sampled_from(SUBJECTS),
        payload=st.binary(max_size=120),
        hdr=st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
        flush=st.booleans(),
        times=st.integers(1, 8),
    )
    def store_msgs(self, subject: bytes, payload: bytes, hdr: bytes, flush: bool, times: int) -> None:
        for _ in range(times):
            self.now += SECOND
            self.last += 1
            assert self.store.store_msg(subject, payload, hdr, ts=self.now, flush=flush) == self.last
            self.model[self.last] = self.stored[self.last] = (self.now, subject, hdr, payload)
            self.enforce()

    def some(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, self.last + 2))

    @rule(data=st.data(), erase=st.booleans())
    def remove(self, data: st.DataObject, erase: bool) -> None:
        seq = self.some(data)
        assert self.store.remove_msg(seq, erase) == (self.model.pop(seq, None) is not None)

    @rule(data=st.data())
    def remove_many(self, data: st.DataObject) -> None:
        for seq in range(self.some(data), self.some(data)):
            assert self.store.remove_msg(seq) == (self.model.pop(seq, None) is not None)

    @rule(data=st.data(), pattern=st.sampled_from(FILTERS), how=st.sampled_from(["all", "seq", "keep"]))
    def purge(self, data: st.DataObject, pattern: bytes, how: str) -> None:
        own = sorted(seq for seq, msg in self.model.items() if matches(pattern, msg[1]))
        if how == "seq":
            before = data.draw(st.integers(1, max(1, self.last)))
            gone = [seq for seq in own if seq < before]
            assert self.store.purge_msgs(pattern, seq=before) == len(gone)
        elif how == "keep":
            keep = data.draw(st.integers(1, 4))
            gone = own[: max(0, len(own) - keep)]
            assert self.store.purge_msgs(pattern, keep=keep) == len(gone)
        else:
            gone = own
            assert self.store.purge_msgs(pattern) == len(gone)
        for seq in gone:
            del self.model[seq]

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(1, self.last + 3))
        gone = [s for s in self.model if s < seq]
        assert self.store.compact_to(seq) == len(gone)
        for s in gone:
            del self.model[s]
        self.last = max(self.last, seq - 1)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(0, self.last))
        gone = [s for s in self.model if s > seq]
        assert self.store.truncate_to(seq) == len(gone)
        for s in gone:
            del self.model[s]
        self.stored = {s: msg for s, msg in self.stored.items() if s <= seq}
        self.last = seq

    @rule(n=st.integers(1, 40))
    def skip(self, n: int) -> None:
        self.store.skip(0, n)
        self.last += n

    @rule(ages=st.integers(0, 30))
    def expire(self, ages: int) -> None:
        age = ages * SECOND + SECOND // 2
        self.store.update_config(max_age=age, **self.limits)
        self.store.expire_msgs(self.now)
        self.store.update_config(**self.limits)
        self.model = {seq: msg for seq, msg in self.model.items() if msg[0] > self.now - age}

    @rule()
    def maintain(self) -> None:
        self.store.maintain(idle=0)

    @precondition(lambda self: not self.in_memory)
    @rule(index=st.sampled_from(["kept", "lost", "damaged"]))
    def reopen(self, index: str) -> None:
        self.store.close()
        if index == "kept":
            self.store = self.opened()
            return
        path = self.at / "msgs" / "index.db"
        if path.exists():
            if index == "lost":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:-3])
        self.after_crash()

    @precondition(lambda self: not self.in_memory)
    @rule(state=st.booleans())
    def crash(self, state: bool) -> None:
        """Crash: open a new store on the files as they are written."""
        if state:
            self.store.write_state(force=True)
        self.store.flush_pending()
        self.copies += 1
        new = self.folder / str(self.copies)
        shutil.copytree(self.at, new)
        self.store.close()
        self.at = new
        self.after_crash()

    def after_crash(self) -> None:
        self.store = self.opened()
        # A removed message may be back when its limit allows it again, as with nats-server.
        state = self.store.state()
        for seq in range(state.first_seq, state.last_seq + 1):
            if seq not in self.model and seq in self.stored and (msg := self.load(seq)) is not None:
                assert msg == self.stored[seq]
                self.model[seq] = msg
        assert state.lost_msgs == 0

    # --- queries ---

    def load(self, seq: int) -> Message | None:
        try:
            got = self.store.get(seq)
        except StoreFailure:
            return None
        assert got[0] == seq
        return got[1:]

    @invariant()
    def same_counts(self) -> None:
        if not hasattr(self, "store"):
            return
        state = self.store.state()
        assert state.msgs == len(self.model)
        assert state.last_seq == self.last
        assert state.first_seq == min(self.model, default=self.last + 1)
        assert state.num_subjects == len({msg[1] for msg in self.model.values()})
        if self.in_memory:
            size = sum(len(m[1]) + len(m[2]) + len(m[3]) + 16 for m in self.model.values())
        else:
            size = sum(
                30 + len(m[1]) + (4 + len(m[2]) if m[2] else 0) + len(m[3]) for m in self.model.values()
            )
        assert state.bytes == size
        if self.model:
            missing = [s for s in range(min(self.model), self.last + 1) if s not in self.model]
            assert [s for a, b in self.store.deleted() for s in range(a, b + 1)] == missing
            assert state.num_deleted == len(missing)
            assert state.first_ts == self.model[min(self.model)][0]

    @rule()
    def all_messages(self) -> None:
        for seq in range(self.last + 2):
            assert self.load(seq) == self.model.get(seq)

    @rule(pattern=st.sampled_from(FILTERS), other=st.sampled_from(FILTERS), data=st.data())
    def questions(self, pattern: bytes, other: bytes, data: st.DataObject) -> None:
        start = self.some(data)
        many = st.lists(st.sampled_from(FILTERS[1:]), min_size=3, max_size=9)
        chosen = data.draw(st.one_of(st.sampled_from([[pattern], [pattern, other]]), many))
        own = sorted(s for s, m in self.model.items() if any(matches(p, m[1]) for p in chosen))
        ahead = [s for s in own if s >= start]
        behind = [s for s in own if s <= start]
        got = self.store.get_next(chosen, start)
        assert (got[0] if got else None) == (ahead[0] if ahead else None)
        got = self.store.get_prev(chosen, start)
        assert (got[0] if got else None) == (behind[-1] if behind else None)
        assert self.store.pending(start, chosen) == len(ahead)
        lasts = {self.model[s][1]: s for s in own}
        assert self.store.pending(start, chosen, last_per_subject=True) == sum(
            s >= start for s in lasts.values()
        )
        assert self.store.last_seqs(chosen) == sorted(lasts.values())
        upto = {self.model[s][1]: s for s in own if s <= start or start == 0}
        assert self.store.last_seqs(chosen, up_to=start) == sorted(upto.values())
        counts = {
            name: [s for s in own if self.model[s][1] == name] for name in {self.model[s][1] for s in own}
        }
        assert self.store.subjects_state(chosen) == {n: (len(s), s[0], s[-1]) for n, s in counts.items()}
        totals = {n: len(s) for n, s in counts.items()}
        assert self.store.subjects_totals(chosen) == totals
        for offset, most in ((0, 100), (1, 2), (start, (1 << 64) - 1)):
            page = sorted(totals.items())[offset : offset + most]
            assert self.store.subjects_page(chosen, offset, most) == (len(totals), page)
        when = data.draw(st.integers(0, self.now + SECOND))
        late = [s for s in sorted(self.model) if self.model[s][0] >= when]
        assert self.store.seq_at(when) == (late[0] if late else self.last + 1)

    @rule(subject=st.sampled_from(SUBJECTS))
    def last_of_subject(self, subject: bytes) -> None:
        own = [s for s, m in self.model.items() if m[1] == subject]
        got = self.store.get_last(subject)
        assert (got[0] if got else None) == (max(own) if own else None)

    @rule(pattern=st.sampled_from([each for each in FILTERS if each != b">"]))
    def last_of_subjects(self, pattern: bytes) -> None:
        own = [s for s, m in self.model.items() if matches(pattern, m[1])]
        got = self.store.get_last(pattern)
        assert (got[0] if got else None) == (max(own) if own else None)

    @rule()
    def very_last(self) -> None:
        got = self.store.get_last(b">")
        assert (got[0] if got else None) == (self.last if self.last in self.model else None)

    @rule(
        pattern=st.sampled_from([b"a..*", b"*.", b".*", b">.a", b"*..>", b" *", b"*.>."])
        | st.binary(max_size=12)
    )
    def last_of_no_subject(self, pattern: bytes) -> None:
        """The subject may come from a header, so it may be any bytes."""
        got = self.store.get_last(pattern)
        assert got is None or matches(pattern, got[2])


class MemoryMachine(StoreMachine):
    """A memory store beside a dict."""

    in_memory = True


RUN = settings(
    max_examples=60,
    stateful_step_count=50,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestFiles = StoreMachine.TestCase
TestFiles.settings = RUN
TestMemory = MemoryMachine.TestCase
TestMemory.settings = RUN
