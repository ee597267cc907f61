"""Archiving streams of a running server: while clients publish, with purges, and restores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import nkeys
import pytest
from support.certs import Certificates
from support.natspy import jetstream, joined
from support.servers import Server, until

from gnats.archive.cli import archive_main
from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.broker import Broker, purge_archived
from gnats.archive.jobs.engine import Inline
from gnats.archive.jobs.job import Archived, Options, Silent
from gnats.archive.jobs.job import archive as run_archive
from gnats.archive.jobs.restore import Wanted, restore, same_origin
from gnats.archive.jobs.verify import verify
from gnats.archive.manifest import Origin
from gnats.archive.ranges import Ranges
from gnats.archive.reading.source import StreamSource
from gnats.archive.reading.streams import find_stream
from gnats.archive.target import Target
from gnats.archive.text import unshow

from .stores import listed, manifest_of, plain

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server(launch_shared: Callable[..., Server]) -> Iterator[Server]:
    yield launch_shared(config="jetstream { store_dir: js }")


@asynccontextmanager
async def connected(server: Server, *names: str) -> AsyncIterator[Any]:
    """Connect a client of JetStream; make empty streams of these names."""
    async with joined(server.url) as client:
        js = jetstream(client)
        for name in names:
            if name in {each.config.name for each in await js.streams_info()}:
                # nats-server removes the files later. It cannot make a stream again whose last one but one
                # is still being removed.
                streams = server.directory / "js/jetstream/$G/streams"
                until(lambda gone=streams / f".{name}": not gone.exists())
                await js.delete_stream(name)
            prefix = "" if name == "ORDERS" else f"{name.lower()}."
            await js.add_stream(name=name, subjects=[f"{prefix}orders.>"])
        yield js


async def publish(js: Any, first: int, last: int) -> None:
    for at in range(first, last + 1):
        headers = {"At": str(at), "Nats-Msg-Id": f"id-{at}"} if at % 3 == 0 else None
        await js.publish_async(f"orders.{at % 4}", b"%d" % at, headers=headers)
    await js.publish_async_completed()


def archived(server: Server, out: Path, options: Options | None = None) -> Archived:
    stream = find_stream(server.directory / "js", "ORDERS")
    (done,) = run_archive([stream], Target(str(out)), Inline(), options or Options(), Silent())
    return done


def verified(server: Server, out: Path) -> Any:
    source = StreamSource(find_stream(server.directory / "js", "ORDERS"))
    return verify(Target(str(out)), manifest_of(out), source, Inline())


async def test_an_archive_while_messages_are_published(server: Server, out: Path) -> None:
    async with connected(server, "ORDERS") as js:
        last = 0
        enough = asyncio.Event()

        async def keep_publishing() -> None:
            nonlocal last
            while not enough.is_set():
                await publish(js, last + 1, last + 200)
                last += 200

        publishing = asyncio.create_task(keep_publishing())
        for _ in range(4):
            await asyncio.to_thread(archived, server, out)
        enough.set()
        await publishing
        archived(server, out)
        rows = listed(out)
        assert [(row["sequence"], row["payload"]) for row in rows] == [
            (n, b"%d" % n) for n in range(1, last + 1)
        ]
        assert rows[2]["headers"] == [("At", ["3"]), ("Nats-Msg-Id", ["id-3"])]
        assert not verified(server, out).problems


async def test_only_what_is_archived_and_verified_is_purged(server: Server, out: Path) -> None:
    async with connected(server, "ORDERS") as js:
        await publish(js, 1, 300)
        archived(server, out, Options(last_seq=200))
        broker = Broker(server.url)
        nothing = replace(verified(server, out), good=Ranges())
        assert (await asyncio.to_thread(purge_archived, broker, nothing)).count == 0
        purged = await asyncio.to_thread(purge_archived, broker, verified(server, out))
        assert (purged.before, purged.count) == (201, 200)
        state = (await js.stream_info("ORDERS")).state
        assert (state.first_seq, state.last_seq, state.messages) == (201, 300, 100)
        archived(server, out)
        assert len(plain(listed(out))) == 300
        done = verified(server, out)
        await publish(js, 301, 310)
        purged = await asyncio.to_thread(purge_archived, broker, done)
        assert (purged.before, purged.count) == (301, 100)
        assert (await js.stream_info("ORDERS")).state.first_seq == 301


async def test_there_is_nothing_to_purge_again(
    server: Server, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--store", str(server.directory / "js"), "--out", str(out), "--stream", "ORDERS"]
    args += ["--engine", "processes", "--workers", "1", "--purge-archived", "--server", server.url]
    async with connected(server, "ORDERS") as js:
        await publish(js, 1, 5)
        assert await asyncio.to_thread(archive_main, args) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[1:] == ["$G > ORDERS: 5 messages purged, before sequence 6"]
        assert await asyncio.to_thread(archive_main, args) == 0
        assert capsys.readouterr().out.splitlines()[1:] == ["$G > ORDERS: nothing to purge"]
        state = (await js.stream_info("ORDERS")).state
        assert (state.first_seq, state.messages) == (6, 0)


async def test_a_stream_that_was_made_anew_is_not_purged(server: Server, out: Path) -> None:
    async with connected(server, "ORDERS") as js:
        await publish(js, 1, 10)
        archived(server, out)
        done = verified(server, out)
    async with connected(server, "ORDERS") as js:
        await publish(js, 1, 5)
        with pytest.raises(ArchiveError, match="nothing is purged"):
            await asyncio.to_thread(purge_archived, Broker(server.url), done)
        assert (await js.stream_info("ORDERS")).state.messages == 5


async def test_a_restore(server: Server, out: Path) -> None:
    async with connected(server, "ORDERS", "AGAIN") as js:
        await publish(js, 1, 1500)
        await js.delete_msg("ORDERS", 7)
        archived(server, out)
        rows = listed(out)
        broker, wanted = Broker(server.url), Wanted("AGAIN", prefix="again.")
        part = Wanted("AGAIN", prefix="again.", last_seq=700)
        manifest = manifest_of(out)
        assert (await asyncio.to_thread(restore, broker, manifest, part)).messages == 699
        done = await asyncio.to_thread(restore, broker, manifest, wanted)  # continues the interrupted restore
        assert (done.messages, done.resumed_after) == (800, 700)
        assert (await asyncio.to_thread(restore, broker, manifest, wanted)).messages == 0
        assert (await js.stream_info("AGAIN")).state.messages == 1499
        for at, row in enumerate(rows, 1):
            if at in (1, 3, 7, 700, 1499):
                message = await js.get_msg("AGAIN", seq=at)
                assert (message.subject, message.data) == (f"again.{row['subject']}", row["payload"])
                headers = dict(message.headers)
                assert headers["Nats-Archived-Origin"] == f"$G {manifest.load().origin.created}"
                assert headers["Nats-Archived-Sequence"] == str(row["sequence"])
                assert headers["Nats-Archived-Time"].startswith(row["time"].strftime("%Y-%m-%dT%H:%M:%S"))
                if row["sequence"] % 3 == 0:
                    assert headers["At"] == str(row["sequence"])
                    assert headers["Nats-Archived-Header-Nats-Msg-Id"] == f"id-{row['sequence']}"
                    assert headers["Nats-Msg-Id"] == f"archived:ORDERS:{row['sequence']}"


async def test_headers_with_several_values_are_restored(server: Server, out: Path) -> None:
    async with connected(server, "ORDERS", "AGAIN") as js:
        await published(js, b"orders.x", b"NATS/1.0\r\nA: 1\r\nB: x\r\nA: 2\r\n\r\n", b"hi")
        archived(server, out)
        wanted = Wanted("AGAIN", prefix="again.")
        assert (await asyncio.to_thread(restore, Broker(server.url), manifest_of(out), wanted)).messages == 1
        archived_again = find_stream(server.directory / "js", "AGAIN")
        (batch,) = StreamSource(archived_again).scan().reader
        headers = dict(batch.column("headers")[0].as_py())
        assert (headers["A"], headers["B"]) == (["1", "2"], ["x"])


async def published(js: Any, subject: bytes, headers: bytes, payload: bytes) -> None:
    """Publish a message that nats-py would refuse, and wait until it is stored."""
    inbox = await js._nc.subscribe("done")
    sizes = len(headers), len(headers) + len(payload)
    await js._nc._send_command(b"HPUB %s done %d %d\r\n%s%s\r\n" % (subject, *sizes, headers, payload))
    await inbox.next_msg(timeout=30)
    await inbox.unsubscribe()


async def test_subjects_and_headers_that_are_no_text_are_restored(server: Server, out: Path) -> None:
    heads = [
        b"NATS/1.0\r\nK\xff: \xfe\x80 v \r\n(a b): \\x41\\\r\nEmpty: \r\n\r\n",
        b"NATS/1.0\r\nno header\r\nA:1\r\n\r\nbehind: \xff\r\n",
        b"none: at all",
    ]
    subjects = [b"orders.\xff\xfe", "orders.\xe4.\\xff".encode(), b"orders.\xc3.\\x41"]
    async with connected(server, "ORDERS", "AGAIN") as js:
        for subject, head in zip(subjects, heads, strict=True):
            await published(js, subject, head, b"\xff\r\n")
        archived(server, out)
        wanted = Wanted("AGAIN", prefix="again.")
        assert (await asyncio.to_thread(restore, Broker(server.url), manifest_of(out), wanted)).messages == 3
        rows = [
            StreamSource(find_stream(server.directory / "js", name)).scan().reader.read_all().to_pylist()
            for name in ("ORDERS", "AGAIN")
        ]
        assert [unshow(row["subject"]) for row in rows[1]] == [b"again." + each for each in subjects]
        for before, after in zip(*rows, strict=True):
            own = [pair for pair in after["headers"] if not pair[0].startswith("Nats-")]
            assert sorted(own) == sorted(before["headers"])
            assert after["payload"] == b"\xff\r\n"


async def test_what_comes_behind_headers_is_not_the_restores(server: Server, out: Path) -> None:
    """Bytes behind the end of the headers, which servers search too, do not act on the restore."""
    behind = [b"Nats-Rollup: all", b"a\r\nNATS-ROLLUP: all", b"Nats-Archived-Sequence: 1"]
    async with connected(server, "ORDERS", "AGAIN") as js:
        config = (await js.stream_info("ORDERS")).config
        await js.update_stream(replace(config, allow_rollup_hdrs=True))
        for text in behind:
            await published(js, b"orders.1", b"NATS/1.0\r\nA: 1\r\n\r\n%s\r\n" % text, b"x")
        archived(server, out)
        wanted = Wanted("AGAIN", prefix="again.")
        for count, after in ((3, 0), (0, 3)):
            done = await asyncio.to_thread(restore, Broker(server.url), manifest_of(out), wanted)
            assert (done.messages, done.resumed_after) == (count, after)
        rows = StreamSource(find_stream(server.directory / "js", "AGAIN")).scan().reader.read_all()
        assert [dict(each)[""] for each in rows["headers"].to_pylist()] == [
            ["Nats-Archived-Header-Nats-Rollup: all\r\n"],
            ["a\r\nNats-Archived-Header-NATS-ROLLUP: all\r\n"],
            ["Nats-Archived-Sequence: 1\r\n"],
        ]


async def test_a_restore_ends_at_what_the_server_does_not_take(server: Server, out: Path) -> None:
    async with connected(server, "ORDERS", "AGAIN") as js:
        for size in (1, 1 << 20, 1):
            await js.publish("orders.x", b"x" * size)
        archived(server, out)
        blank = Wanted("AGAIN", prefix="a b.")
        with pytest.raises(ArchiveError, match=r"message 1 cannot be published to 'a b\.orders\.x'"):
            await asyncio.to_thread(restore, Broker(server.url), manifest_of(out), blank)
        wanted = Wanted("AGAIN", prefix="again.")
        with pytest.raises(ArchiveError, match=r"message 2 has 1,048,\d+ bytes .* no more than 1,048,576"):
            await asyncio.to_thread(restore, Broker(server.url), manifest_of(out), wanted)
        assert (await js.stream_info("AGAIN")).state.last_seq == 1
        without = Wanted("AGAIN", prefix="again.", first_seq=3)
        done = await asyncio.to_thread(restore, Broker(server.url), manifest_of(out), without)
        assert (done.messages, done.resumed_after) == (1, 1)


async def test_a_restore_into_a_stream_that_is_not_empty(server: Server, out: Path) -> None:
    async with connected(server, "ORDERS", "AGAIN") as js:
        await publish(js, 1, 3)
        archived(server, out)
        await js.publish("again.orders.x", b"")
        with pytest.raises(ArchiveError, match="needs an empty stream"):
            await asyncio.to_thread(
                restore, Broker(server.url), manifest_of(out), Wanted("AGAIN", prefix="again.")
            )


async def test_a_restore_does_not_go_on_from_another_archive(server: Server, tmp_path: Path) -> None:
    for out, last in ((tmp_path / "first", 3), (tmp_path / "second", 9)):
        names = ("ORDERS", "AGAIN") if last == 3 else ("ORDERS",)  # made anew by the restore
        async with connected(server, *names) as js:
            await publish(js, 1, last)
            archived(server, out)
    broker, wanted = Broker(server.url), Wanted("AGAIN", prefix="again.")
    assert (await asyncio.to_thread(restore, broker, manifest_of(tmp_path / "first"), wanted)).messages == 3
    with pytest.raises(ArchiveError, match=r"was not restored from ORDERS \(\$G 2"):
        await asyncio.to_thread(restore, broker, manifest_of(tmp_path / "second"), wanted)


def test_origins() -> None:
    origin = Origin("two words", "S", "2026-01-31T12:00:00Z")
    assert same_origin("two words 2026-01-31T12:00:00Z", origin)
    assert same_origin("two words -", origin)
    assert same_origin("- -", origin)
    assert same_origin("two words 2026-01-31T12:00:00Z", replace(origin, created=""))
    assert not same_origin("two words 2026-01-31T12:00:01Z", origin)
    assert not same_origin("words -", origin)
    assert not same_origin("", origin)


async def test_a_restore_ends_when_somebody_else_publishes(server: Server, out: Path) -> None:
    async with connected(server, "ORDERS", "AGAIN") as js:
        await publish(js, 1, 200)
        archived(server, out)
        wanted = Wanted("AGAIN", prefix="again.", rate=400)
        seen = await js._nc.subscribe("again.>")
        task = asyncio.create_task(asyncio.to_thread(restore, Broker(server.url), manifest_of(out), wanted))
        await seen.next_msg(timeout=30)
        await js.publish("again.orders.other", b"")
        with pytest.raises(ArchiveError, match="wrong last"):
            await task
        state = (await js.stream_info("AGAIN")).state
        last = await js.get_msg("AGAIN", seq=state.last_seq)
        assert last.subject == "again.orders.other"


def test_a_server_that_is_not_there(out: Path, orders: Any) -> None:
    from .stores import archive

    orders.publish(1)
    archive(orders, out)
    with pytest.raises(ArchiveError, match=r"nats://127\.0\.0\.1:1 cannot be reached"):
        restore(Broker("nats://x:secret@127.0.0.1:1"), manifest_of(out), Wanted("ORDERS"))


def test_credentials_are_looked_at_before_a_server_asks_for_them(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER).decode()
    text = (
        "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\n"
        "-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n"
    )
    broker = Broker(creds=str(path))
    path.write_text(text.format(seed))
    broker.check()
    for wrong in ("", "hello", text.format(""), text.format("SUxx"), text.format(seed[:-1] + "!"), seed):
        path.write_text(wrong)
        with pytest.raises(ArchiveError, match=r"user\.creds are none"):
            broker.check()


async def test_nothing_is_sent_to_a_server_without_tls(certs: Certificates) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1048576}\r\n')
        data = await reader.read(100)
        writer.close()
        await writer.wait_closed()
        received.put_nowait(data)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        for broker in (
            Broker(f"tls://user:password@127.0.0.1:{port}"),
            Broker(f"nats://user:password@127.0.0.1:{port}", tls_ca=str(certs.ca.cert_file)),
        ):
            with pytest.raises(
                ArchiveError, match=r"127\.0\.0\.1.* cannot be reached: the server offers no TLS"
            ):
                async with broker.connect():
                    pass
            assert await received.get() == b""
    with pytest.raises(ArchiveError, match="has no TLS to use a CA for"):
        Broker("ws://127.0.0.1:1", tls_ca=str(certs.ca.cert_file)).check()


@pytest.mark.parametrize("optional", ["", "allow_non_tls: true"])
async def test_tls(launch: Callable[..., Server], certs: Certificates, optional: str) -> None:
    server = launch(config=f"tls {{ {certs.server.tls_block} }}\n{optional}")
    host, port = server.address
    broker = Broker(f"nats://{host}:{port}", tls_ca=str(certs.ca.cert_file))
    async with broker.connect() as connection:
        assert await broker.account(connection) == "$G"
    with pytest.raises(ArchiveError, match="certificate verify failed"):
        async with Broker(f"tls://{host}:{port}").connect():
            pass
