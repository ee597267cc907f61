"""Hostile or unlucky clients, and reloads at a bad moment, do no harm to clients of other accounts."""

import re
import threading
from functools import partial

import pytest
from support.peer import Peer
from support.servers import until
from support.stress import SCALE, settle, together
from support.wire import connect_op

from gnats.core.accounts.account import Account
from gnats.core.auth.permissions import compile_permissions
from gnats.core.client import Client
from gnats.core.runtime import quiesce
from gnats.options.options import Options
from gnats.options.values.accounts import (
    AccountConfig,
    MapDest,
    Mapping,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import Permissions, SubjectPermission, User
from gnats.server.server import Server
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

ROUNDS = 600 * SCALE
MESSAGES = 3000 * SCALE
STRAYS = 65536
"""Responses to responses that an account waits for at the same time."""

BOTH = pytest.mark.parametrize("threads", [0, 2], ids=["loop", "threads"])


def options(
    a: AccountConfig,
    b: AccountConfig | None = None,
    threads: int = 2,
    users: list[User] | None = None,
) -> Options:
    """Return options with accounts A and B, and users a and b unless others are given."""
    accounts = [account for account in (a, b) if account]
    if users is None:
        users = [User(account.name.lower(), "p", account=account.name) for account in accounts]
    return Options(host="127.0.0.1", port=-1, io_threads=threads, accounts=accounts, users=users)


def service(threads: int = 2, kind: str = "singleton", threshold: float = 0.0) -> Options:
    return options(
        AccountConfig("A", exports=[ServiceExport("svc", response_type=kind, threshold=threshold)]),
        AccountConfig("B", imports=[ServiceImport("A", "svc")]),
        threads,
    )


def streams(*imports: StreamImport, threads: int = 2) -> Options:
    return options(
        AccountConfig("A", exports=[StreamExport(">")]), AccountConfig("B", imports=list(imports)), threads
    )


def configure(server: ServerThread, opts: Options) -> None:
    def change(s: Server) -> None:
        s.accounts.configure(opts)

    server.call(change)


def hello(user: str) -> bytes:
    return connect_op(user, "p", pedantic=False, headers=True, no_responders=True)


def request(peer: Peer, responder: Peer, reply: bytes) -> bytes:
    """Send a request; return the reply subject that the responder receives."""
    responder.fence()
    peer.send(b"PUB svc %b 0\r\n\r\n" % reply)
    peer.fence()
    found = re.search(rb"HMSG svc \S+ (_R_\S+) ", responder.fence())
    assert found
    return found[1]


def pending(server: ServerThread) -> tuple[int, int]:
    """Return the numbers of responses that A owes and that B waits for."""
    return server.call(lambda s: (s.accounts["A"].pending_responses, s.accounts["B"].pending_requests))


# -- responses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", ["gone", "of another kind"])
def test_the_response_of_a_service_that_is_offered_no_more_still_arrives(now: str) -> None:
    with (
        ServerThread(service()) as server,
        Peer(server.port, hello("a")) as a,
        Peer(server.port, hello("b")) as b,
    ):
        a.send(b"SUB svc 1\r\n")
        b.send(b"SUB in 1\r\n")
        reply = request(b, a, b"in")
        new = service(kind="stream") if now != "gone" else options(AccountConfig("A"), AccountConfig("B"))
        configure(server, new)
        a.send(b"PUB %b 2\r\nok\r\n" % reply)
        a.fence()
        assert b"MSG in 1 2\r\nok\r\n" in b.fence()
        assert pending(server) == (0, 0)


def test_what_a_service_owed_is_forgotten_in_time_when_it_is_offered_no_more() -> None:
    with (
        ServerThread(service(threshold=0.2)) as server,
        Peer(server.port, hello("a")) as a,
        Peer(server.port, hello("b")) as b,
    ):
        a.send(b"SUB svc 1\r\n")
        b.send(b"SUB in 1\r\n")
        request(b, a, b"in")
        configure(server, options(AccountConfig("A"), AccountConfig("B")))
        until(lambda: pending(server) == (0, 0))


def test_responses_to_responses_are_bounded() -> None:
    """A responder puts a reply subject on each of its responses, and subscribes to none of them."""
    count, slice_ = STRAYS + 4000, 1000
    with (
        ServerThread(service(kind="stream")) as server,
        Peer(server.port, hello("a")) as a,
        Peer(server.port, hello("b")) as b,
    ):
        a.send(b"SUB svc 1\r\n")
        b.send(b"SUB in 1\r\n")
        reply = request(b, a, b"in")
        for start in range(0, count, slice_):
            a.send(b"".join(b"PUB %b r.%d 1\r\nx\r\n" % (reply, n) for n in range(start, start + slice_)))
            a.fence()
            assert b.fence().count(b"MSG in 1 _R_.") == slice_
        owed, awaited = server.call(
            lambda s: (s.accounts["B"].pending_responses, s.accounts["A"].pending_requests)
        )
        assert owed == awaited == STRAYS
        a.send(b"SUB r.> 2\r\nUNSUB 2\r\n")  # the last subscription to the reply subjects is gone
        a.fence()
        assert server.call(lambda s: s.accounts["B"].pending_responses) == 0


def test_what_is_kept_of_unanswered_requests_is_bounded() -> None:
    """The bound is in bytes of reply subjects: at most 64 MiB."""
    slice_, slices, length = 100, 180, 3900
    with (
        ServerThread(service()) as server,
        Peer(server.port, hello("a")) as a,
        Peer(server.port, hello("b")) as b,
    ):
        a.send(b"SUB svc 1\r\n")
        a.fence()
        for n in range(slices):
            reply = b"%d." % n + b"r" * length
            b.send(b"PUB svc %b 0\r\n\r\n" % reply * slice_)
            b.fence()
            a.fence()
        owed, awaited = pending(server)
        assert owed == awaited
        assert length * owed <= 64 << 20 < length * slice_ * slices
        b.send(b"SUB > 1\r\nUNSUB 1\r\n")
        b.fence()
        assert pending(server) == (0, 0)


@BOTH
@pytest.mark.timeout(40)
@pytest.mark.parametrize("order", [1, -1], ids=["first come first", "last come first"])
def test_many_requests_wait_on_one_reply_subject(threads: int, order: int) -> None:
    """A response removes its request without a search through the others."""
    count, answered, slice_ = 60000, 50000, 2000
    with (
        ServerThread(service(threads)) as server,
        Peer(server.port, hello("a")) as a,
        Peer(server.port, hello("b")) as b,
    ):
        a.send(b"SUB svc 1\r\n")
        a.fence()
        b.send(b"SUB in 1\r\nSUB in 2\r\n")
        replies: list[bytes] = []
        for _ in range(0, count, slice_):
            b.send(b"PUB svc in 0\r\n\r\n" * slice_)
            b.fence()
            replies += re.findall(rb"HMSG svc \S+ (_R_\S+) ", a.fence())
        assert len(replies) == count
        assert pending(server) == (count, count)
        replies = replies[::order][:answered]
        for start in range(0, answered, slice_):
            a.send(b"".join(b"PUB %b 0\r\n\r\n" % reply for reply in replies[start : start + slice_]))
            a.fence()
            assert b.fence().count(b"MSG in ") == 2 * slice_
        assert pending(server) == (count - answered, count - answered)
        b.send(b"UNSUB 1\r\n")
        b.fence()
        assert pending(server) == (count - answered, count - answered)
        b.send(b"UNSUB 2\r\n")
        b.fence()
        assert pending(server) == (0, 0)


@BOTH
@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["undone", "closed"])
def test_many_wildcards_go_while_many_responses_are_waited_for(threads: int, how: str) -> None:
    """One search finds the requests that lost their subscriptions; those with others, or never any, stay."""
    count, wildcards, others = 20000, 10000, 50
    with (
        ServerThread(service(threads)) as server,
        Peer(server.port, hello("a")) as a,
        Peer(server.port, hello("b")) as b,
        Peer(server.port, hello("b")) as stays,
    ):
        a.send(b"SUB svc 1\r\n")
        a.fence()
        stays.send(b"SUB keep.* 1\r\nSUB in.7.* group 2\r\n")
        stays.fence()
        b.send(b"SUB in.> 0\r\n" + b"".join(b"SUB in.*.%d %d\r\n" % (n, n) for n in range(1, wildcards)))
        b.send(b"SUB keep.> %d\r\n" % wildcards)
        replies = [b"in.x.%d" % n for n in range(count)]
        kept = [b"%b.%d" % (word, n) for word in (b"keep", b"odd", b"in.7") for n in range(others)]
        for start in range(0, count, 1000):
            b.send(b"".join(b"PUB svc %b 0\r\n\r\n" % reply for reply in replies[start : start + 1000]))
            b.fence()
        b.send(b"".join(b"PUB svc %b 0\r\n\r\n" % reply for reply in kept))
        b.fence()
        assert pending(server) == (count + len(kept), count + len(kept))
        if how == "undone":
            b.send(b"".join(b"UNSUB %d\r\n" % n for n in range(wildcards + 1)))
            b.fence()
        else:
            b.close()
        until(lambda: pending(server) == (len(kept), len(kept)))
        stays.send(b"UNSUB 1\r\nUNSUB 2\r\n")
        stays.fence()
        assert pending(server) == (others, others)


@BOTH
def test_who_leaves_while_its_request_is_on_the_way_leaves_nothing(threads: int) -> None:
    """A client subscribes to another client's reply subjects and leaves while requests are under way."""
    done = threading.Event()
    with ServerThread(service(threads)) as server:
        port = server.port

        def ask() -> None:
            with Peer(port, hello("b")) as peer:
                for n in range(ROUNDS):
                    peer.send(b"PUB svc in.%d 0\r\n\r\n" % n * 50)
                    peer.fence()
                done.set()

        def come_and_go() -> None:
            with Peer(port, hello("b")) as peer:
                while not done.is_set():
                    peer.send(b"SUB in.> 1\r\nUNSUB 1\r\n" * 20)
                    peer.fence()

        with Peer(port, hello("a")) as silent:
            silent.send(b"SUB svc 1\r\n")
            silent.fence()
            together(ask, come_and_go, come_and_go)
            with Peer(port, hello("b")) as last:
                last.send(b"SUB in.> 1\r\nUNSUB 1\r\n")
                last.fence()
                assert pending(server) == (0, 0)


@BOTH
def test_services_come_and_go_while_requests_are_under_way(threads: int) -> None:
    """A request to a closed service waits for nothing; a service that a request waits for is not freed."""
    variants = [
        service(threads),
        service(threads, "stream", 0.01),
        options(AccountConfig("A"), AccountConfig("B"), threads),
        service(threads, "chunked", 0.01),
    ]
    done = threading.Event()
    with ServerThread(service(threads)) as server:
        port = server.port

        def ask() -> None:
            with Peer(port, hello("b")) as peer:
                n = 0
                while not done.is_set():
                    peer.send(b"SUB in.%d 1\r\n" % n + b"PUB svc in.%d 0\r\n\r\n" % n * 50 + b"UNSUB 1\r\n")
                    peer.fence()
                    n += 1

        def ask_without_listening() -> None:
            with Peer(port, hello("b")) as peer:
                while not done.is_set():
                    peer.send(b"PUB svc nowhere 0\r\n\r\n" * 50)
                    peer.fence()

        def answer() -> None:
            with Peer(port, hello("a")) as peer:
                peer.send(b"SUB svc 1\r\n")
                while not done.is_set():
                    replies = re.findall(rb"HMSG svc 1 (\S+) ", peer.fence())
                    peer.send(b"".join(b"PUB %b back 1\r\nx\r\n" % reply for reply in replies[::2]))

        def come_and_go() -> None:
            while not done.is_set():
                with Peer(port, hello("b")) as peer:
                    peer.send(b"SUB in 1\r\n" + b"PUB svc in 0\r\n\r\n" * 20)

        def change() -> None:
            for n in range(ROUNDS):
                configure(server, variants[n % len(variants)])
            done.set()

        together(ask, ask_without_listening, answer, come_and_go, change)
        settle(server)
        configure(server, options(AccountConfig("A"), AccountConfig("B"), threads))
        owed, awaited = pending(server)
        assert owed == awaited
    quiesce.reclaim()
    assert quiesce.waiting_blocks() == 0


@BOTH
def test_accounts_go_and_come_back_under_their_clients(threads: int) -> None:
    """A reload removes an account and closes its clients; the next reload brings it back meanwhile."""
    whole, without = service(threads), options(AccountConfig("A"), threads=threads)
    done = threading.Event()
    with (
        ServerThread(whole) as server,
        Peer(server.port, hello("a")) as a,
        Peer(server.port, hello("b")) as b,
    ):

        def ask() -> None:
            b.send(b"SUB in.* 1\r\n")
            while not done.is_set():
                b.send(b"PUB svc in.x 1\r\nx\r\n" * 50)
                b.fence()

        def answer() -> None:
            a.send(b"SUB svc 1\r\n")
            while not done.is_set():
                replies = re.findall(rb"HMSG svc 1 (\S+) ", heard := a.fence())
                assert heard.count(b'Nats-Request-Info: {"acc":"B"') == len(replies)
                a.send(b"".join(b"PUB %b 2\r\nok\r\n" % reply for reply in replies))
                a.fence()

        def change() -> None:
            for n in range(ROUNDS):
                configure(server, whole if n % 2 else without)
            done.set()

        together(ask, answer, change)


# -- streams ----------------------------------------------------------------------------------------------


def test_an_import_that_goes_to_other_subjects_does() -> None:
    """The old and the new import have the same wildcards in the same tokens, in another order."""
    before = streams(StreamImport("A", "s.*.*", to="t.$1.$2"))
    after = streams(StreamImport("A", "s.*.*", to="t.$2.$1"))
    with (
        ServerThread(before) as running,
        Peer(running.port, hello("a")) as a,
        Peer(running.port, hello("b")) as b,
    ):
        b.send(b"SUB t.> 1\r\n")
        b.fence()
        configure(running, after)
        b.fence()
        a.send(b"PUB s.x.y 0\r\n\r\n")
        a.fence()
        assert re.findall(rb"MSG (\S+) ", b.fence()) == [b"t.y.x"]


def test_a_service_import_that_leads_elsewhere_does() -> None:
    def turned(to: str) -> Options:
        return options(
            AccountConfig("A", exports=[ServiceExport("q.*.*")]),
            AccountConfig("B", imports=[ServiceImport("A", "q.*.*", to=to)]),
        )

    with (
        ServerThread(turned("ask.$1.$2")) as server,
        Peer(server.port, hello("a")) as a,
        Peer(server.port, hello("b")) as b,
    ):
        a.send(b"SUB q.> 1\r\n")
        a.fence()
        configure(server, turned("ask.$2.$1"))
        b.send(b"PUB ask.x.y 0\r\n\r\n")
        b.fence()
        assert re.findall(rb"HMSG (\S+) ", a.fence()) == [b"q.y.x"]


@BOTH
def test_what_stays_imported_is_heard_once(threads: int) -> None:
    """Plain and queue subscribers get each message once and in order while other imports change."""
    steady = StreamImport("A", "steady.>")
    few = streams(steady, threads=threads)
    more = streams(StreamImport("A", "extra.>", prefix="p"), steady, threads=threads)
    with (
        ServerThread(few) as server,
        Peer(server.port, hello("b")) as plain,
        Peer(server.port, hello("b")) as queued,
        Peer(server.port, hello("a")) as teller,
    ):
        plain.send(b"SUB steady.> 1\r\nSUB > 2\r\n")
        plain.fence()
        queued.send(b"SUB steady.* q 1\r\nSUB *.s q 2\r\n")
        queued.fence()

        def tell() -> None:
            for n in range(MESSAGES):
                teller.send(b"PUB steady.s %d\r\n%d\r\n" % (len(str(n)), n))
                if n % 20 == 19:
                    teller.fence()
            teller.fence()

        def change() -> None:
            for n in range(ROUNDS // 4):
                configure(server, few if n % 2 else more)

        together(tell, change)
        heard = plain.fence()
        for sid in (1, 2):
            found = re.findall(rb"MSG steady\.s %d \d+\r\n(\d+)\r\n" % sid, heard)
            assert [int(n) for n in found] == list(range(MESSAGES))
        found = re.findall(rb"MSG steady\.s \d \d+\r\n(\d+)\r\n", queued.fence())
        assert [int(n) for n in found] == list(range(MESSAGES))


@BOTH
def test_everything_changes_while_clients_come_and_go(threads: int) -> None:
    """Imports, mappings, permissions and clients change while messages go between two pollers.

    Every message received is whole and has an expected subject; in the end nothing is left behind.
    """
    narrow = Permissions(
        publish=SubjectPermission(allow=(">",)), subscribe=SubjectPermission(deny=("in.a.secret.>", "svc.no"))
    )
    wide = Permissions(publish=SubjectPermission(allow=("ask.>",)))

    def variant(n: int) -> Options:
        exports = [
            StreamExport("s.>"),
            ServiceExport("svc.*", response_type=("stream" if n & 4 else "singleton")),
        ]
        imports: list[StreamImport | ServiceImport] = []
        if n & 1:
            imports.append(StreamImport("A", "s.>", prefix="in.a"))
        else:
            imports.append(StreamImport("A", "s.*", to="in.a.$1"))
        if n % 3:
            imports.append(ServiceImport("A", "svc.*", to="ask.$1" if n & 2 else "", share=bool(n & 1)))
        mappings = [Mapping("svc.*", (MapDest("svc.$1.x", 50),)), Mapping("s.m.*", (MapDest("s.$1"),))]
        return options(
            AccountConfig("A", exports=exports, mappings=mappings[: n % 3]),
            AccountConfig("B", imports=imports),
            threads,
        )

    done = threading.Event()
    with ServerThread(variant(0)) as server:
        port = server.port
        before = server.call(lambda s: {name: s.accounts[name].sublist.count() for name in "AB"})

        def tell() -> None:
            with Peer(port, hello("a")) as peer:
                while not done.is_set():
                    peer.send(
                        b"PUB s.one r 3\r\none\r\nPUB s.m.two 3\r\ntwo\r\nPUB s.secret.x 3\r\nsec\r\n" * 20
                    )
                    peer.send(b"HPUB s.one 12 15\r\nNATS/1.0\r\n\r\none\r\n")
                    peer.fence()

        def serve() -> None:
            with Peer(port, hello("a")) as peer:
                peer.send(b"SUB svc.> w 1\r\n")
                while not done.is_set():
                    replies = re.findall(rb"HMSG svc\.\S+ 1 (_R_\S+) ", peer.fence())
                    peer.send(b"".join(b"PUB %b 2\r\nok\r\nPUB %b 0\r\n\r\n" % (r, r) for r in replies))

        def listen(user: str, connect: bytes) -> None:
            known = (
                rb"(?:in\.a\.(?:s\.)?(?:one|m\.two|two|secret\.x)|s\.(?:one|m\.two|two|secret\.x)|in\.\d+)"
            )
            line = re.compile(
                rb"MSG (?P<subject>%b) \d+ (?:r )?(?P<n>\d+)\r\n(?P<body>one|two|sec|ok|)\r\n"
                rb"|HMSG %b \d+ (?:r )?"
                rb"(?:12 15\r\nNATS/1\.0\r\n\r\none|\d+ \d+\r\nNATS/1\.0 503\r\n[^\r]*\r\n\r\n)\r\n"
                rb"|PONG\r\n|PING\r\n|INFO [^\r]*\r\n|-ERR [^\r]*\r\n" % (known, known)
            )
            round_ = 0
            while not done.is_set():
                round_ += 1
                with Peer(port, connect) as peer:
                    peer.send(b"SUB in.a.> 1\r\nSUB *.a.* q 2\r\nSUB > 3\r\nUNSUB 3 5\r\nSUB in.* 4\r\n")
                    for n in range(20):
                        peer.send(b"PUB ask.x in.%d 2\r\nhi\r\nPUB svc.y in.%d 2\r\nhi\r\n" % (n, n))
                        if round_ % 2:
                            peer.send(b"UNSUB 1\r\nSUB in.a.> 1\r\n")
                    heard = peer.fence()
                    if user == "b":
                        heard = re.sub(rb"MSG (?:ask\.x|svc\.y) \d+ in\.\d+ 2\r\nhi\r\n", b"", heard)
                        rest = line.sub(b"", heard)
                        assert rest == b"", rest[:300]
                    if round_ % 3 == 0:
                        peer.reset()

        def change() -> None:
            def permit(s: Server, permissions: Permissions | None) -> None:
                for session in s.accounts["B"].clients.values():
                    if session.client:
                        compiled = compile_permissions(permissions) if permissions else None
                        session.client.set_permissions(compiled)

            for n in range(ROUNDS // 4):
                configure(server, variant(n))
                server.call(partial(permit, permissions=(None, narrow, wide)[n % 3]))
            done.set()

        without_headers = hello("b").replace(b'"headers":true', b'"headers":false')
        without_headers = without_headers.replace(b'"no_responders":true', b'"no_responders":false')
        together(
            tell,
            serve,
            partial(listen, "b", hello("b")),
            partial(listen, "b", without_headers),
            partial(listen, "a", hello("a")),
            change,
        )
        settle(server)
        configure(server, variant(0))
        after = server.call(
            lambda s: {
                name: s.accounts[name].sublist.count() - bool(s.accounts[name].responder_subscription())
                for name in "AB"
            }
        )
        assert after == before
    quiesce.reclaim()
    assert quiesce.waiting_blocks() == 0


# -- clients ----------------------------------------------------------------------------------------------


def connect_in(client: Client, account: Account) -> None:
    """Register a connection as a client of `account`, as the answer to CONNECT does."""
    client.accept_connect(
        account,
        echo=True,
        verbose=False,
        pedantic=False,
        headers=True,
        no_responders=True,
        protocol=1,
        connect_info=b"",
        greeting=b"+MOVED\r\n",
    )


def test_imports_change_while_the_first_connect_is_answered() -> None:
    """The poller gets both at once; a subscription made before CONNECT gets the new import."""

    def both(s: Server) -> None:
        early, other = (session.client for session in s.clients.values())
        assert early is not None and other is not None
        s.accounts.global_account.set_stream_imports([(s.accounts["A"], b"a", b"early", None, False, False)])
        connect_in(early, s.accounts.global_account)
        early.renew_imports()
        connect_in(other, s.accounts["A"])

    with ServerThread(options(AccountConfig("A"), threads=0, users=[])) as server:
        with Peer(server.port, b"") as peer, Peer(server.port, b"") as other:
            peer.send(b"SUB early 1\r\n")
            peer.fence()
            server.call(both)
            peer.until(b"+MOVED\r\n")
            other.until(b"+MOVED\r\n")
            other.send(b"PUB a 0\r\n\r\n")
            other.fence()
            assert b"MSG early 1 0\r\n" in peer.fence()
        settle(server)


def test_what_was_subscribed_before_the_first_connect_does_not_come_along_to_another_account() -> None:
    """Without users a client may subscribe before CONNECT; after a reload CONNECT names its account."""

    def move(s: Server) -> None:
        client = next(session.client for session in s.clients.values() if session.client)
        connect_in(client, s.accounts["A"])

    with ServerThread(options(AccountConfig("A"), users=[])) as server:
        before = server.call(lambda s: s.accounts.global_account.sublist.count())
        with Peer(server.port, b"") as peer:
            peer.send(b"SUB early 1\r\n")
            peer.fence()
            server.call(move)
            peer.until(b"+MOVED\r\n")
            peer.send(b"SUB late 1\r\nPUB late 0\r\n\r\nPUB early 0\r\n\r\n")
            heard = peer.fence()
            assert b"MSG late 1 0\r\n" in heard
            assert b"MSG early" not in heard
            assert server.call(lambda s: s.accounts.global_account.sublist.count()) == before
        settle(server)
        with Peer(server.port) as peer:
            peer.send(b"PUB early 0\r\n\r\n")
            peer.fence()
