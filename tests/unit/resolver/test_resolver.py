"""Resolvers of account JWTs: directories and servers' requests about them, URLs, memory."""

import asyncio
import gzip
import hashlib
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import jwts
from support.operatormode import Log

from gnats.jwt.claims import GenericClaims
from gnats.jwt.token import encode
from gnats.nkeys.nkeys import KeyPair
from gnats.options.options import Options
from gnats.options.values.auth import ResolverOptions
from gnats.options.values.tls import TLSOptions
from gnats.resolver import build_resolver
from gnats.resolver.base import NoOtherServers, ResolverError, SystemRequests
from gnats.resolver.directory import PACK_SUBJECT, DirectoryResolver
from gnats.resolver.dirstore import Delete, DirStore
from gnats.resolver.url import URLResolver

pytestmark = pytest.mark.timeout(60)

OPERATOR, SYSTEM = jwts.operator(), jwts.account()
KEYS = [jwts.account() for _ in range(6)]
NAMES = [key.public_key for key in KEYS]


def token(at: int = 0, *, iat: int = 1000, exp: int | None = None, name: str = "x") -> str:
    """Make a JWT; the same arguments give the same text."""
    made = jwts.account_jwt(KEYS[at], OPERATOR)
    return jwts.resign(made, OPERATOR, name=name, exp=exp, jti=name, iat=iat)


def digest(*tokens: str) -> bytes:
    total = 0
    for each in tokens:
        total ^= int.from_bytes(hashlib.sha256(each.encode()).digest(), "big")
    return total.to_bytes(32, "big")


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# A directory


def test_a_jwt_is_a_file(tmp_path: Path) -> None:
    store = DirStore(str(tmp_path / "new" / "jwts"))
    assert store.save(NAMES[0], token())
    assert not store.save(NAMES[0], token())
    assert store.load(NAMES[0]) == token()
    assert store.load(NAMES[1]) is None
    file = tmp_path / "new" / "jwts" / f"{NAMES[0]}.jwt"
    assert file.read_text() == token()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_what_is_there_is_found_again(tmp_path: Path) -> None:
    store = DirStore(str(tmp_path))
    for at in range(3):
        store.save(NAMES[at], token(at))
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "strange.jwt").write_text("x")
    again = DirStore(str(tmp_path))
    assert again.hash == store.hash == digest(token(0), token(1), token(2))
    assert len(again) == 3
    assert sorted(again.pack()) == sorted(f"{NAMES[at]}|{token(at)}" for at in range(3))


@pytest.mark.parametrize(
    "name", ["", "..", "../../etc/passwd", "A" * 55, "x/y", NAMES[0].lower(), NAMES[0] + "\n"]
)
def test_only_a_key_names_a_file(tmp_path: Path, name: str) -> None:
    store = DirStore(str(tmp_path / "jwts"), delete=Delete.HARD)
    for use in (
        store.load,
        lambda key: store.save(key, "x"),
        lambda key: store.save_if_newer(key, "x"),
        store.delete,
    ):
        with pytest.raises(ResolverError, match="invalid public key"):
            use(name)
    assert list(tmp_path.rglob("*")) == [tmp_path / "jwts"]


def test_a_file_cannot_be_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResolverError, match="is not a directory"):
        DirStore(str(tmp_path / "file"))
    with pytest.raises(ResolverError):
        DirStore(str(tmp_path / "file" / "below"))


def test_an_older_jwt_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    store = DirStore(str(tmp_path))
    old, new = token(iat=1000, name="old"), token(iat=2000, name="new")
    assert store.save_if_newer(NAMES[0], new)
    assert not store.save_if_newer(NAMES[0], old)
    assert store.load(NAMES[0]) == new
    assert store.save_if_newer(NAMES[0], token(iat=3000, name="newest"))
    with pytest.raises(ResolverError, match="do not match"):
        store.save_if_newer(NAMES[0], token(1, iat=4000))
    with pytest.raises(ResolverError, match="3 chunks"):
        store.save_if_newer(NAMES[0], "x")
    assert store.save(NAMES[0], old)


def test_a_full_store_takes_no_more(tmp_path: Path) -> None:
    store = DirStore(str(tmp_path), limit=2)
    store.save(NAMES[0], token(0))
    store.save(NAMES[1], token(1))
    with pytest.raises(ResolverError, match="jwt store is full"):
        store.save(NAMES[2], token(2))
    assert store.save(NAMES[0], token(0, name="y"))


def test_a_cache_forgets_what_was_not_used_for_longest(tmp_path: Path) -> None:
    store = DirStore(str(tmp_path), limit=2, evict=True, delete=Delete.HARD)
    store.save(NAMES[0], token(0))
    store.save(NAMES[1], token(1))
    store.load(NAMES[0])
    store.save(NAMES[2], token(2))
    assert store.load(NAMES[1]) is None
    assert store.load(NAMES[0])
    assert store.hash == digest(token(0), token(2))


def test_a_jwt_goes_when_it_expires(tmp_path: Path) -> None:
    now = int(time.time())
    store = DirStore(str(tmp_path))
    store.save(NAMES[0], token(0, exp=now + 100))
    store.save(NAMES[1], token(1))
    assert store.expire(now + 99) == []
    assert store.expire(now + 101) == [NAMES[0]]
    assert store.expire(now + 10**9) == []
    assert store.hash == digest(token(1))
    assert [path.stem for path in tmp_path.iterdir()] == [NAMES[1]]


def test_a_cached_jwt_goes_when_it_was_not_used_for_its_time_to_live(tmp_path: Path) -> None:
    store = DirStore(str(tmp_path), ttl=100.0, evict=True, delete=Delete.HARD)
    assert store.expire_interval == 50.0
    store.save(NAMES[0], token(0, exp=int(time.time()) - 5))
    assert store.expire() == []
    assert store.expire(time.time() + 101) == [NAMES[0]]


@pytest.mark.parametrize("delete", Delete)
def test_deletion(tmp_path: Path, delete: Delete) -> None:
    store = DirStore(str(tmp_path), delete=delete)
    store.save(NAMES[0], token())
    if delete is Delete.NO:
        with pytest.raises(ResolverError, match="not set up"):
            store.delete(NAMES[0])
        return
    assert store.delete(NAMES[0])
    assert not store.delete(NAMES[0])
    assert store.load(NAMES[0]) is None
    assert store.hash == digest()
    left = [path.name for path in tmp_path.iterdir()]
    assert left == ([f"{NAMES[0]}.jwt.deleted"] if delete is Delete.RENAME else [])
    assert len(DirStore(str(tmp_path))) == 0


def test_what_others_did_in_the_directory_is_noticed(tmp_path: Path) -> None:
    store = DirStore(str(tmp_path))
    for at in range(3):
        store.save(NAMES[at], token(at))
    (tmp_path / f"{NAMES[0]}.jwt").unlink()
    (tmp_path / f"{NAMES[1]}.jwt").write_text(token(1, name="y"))
    (tmp_path / f"{NAMES[3]}.jwt").write_text(token(3))
    assert store.reload() == [NAMES[1]]
    assert store.hash == digest(token(1, name="y"), token(2), token(3))


def test_packs_are_merged(tmp_path: Path) -> None:
    ours, theirs = DirStore(str(tmp_path / "ours")), DirStore(str(tmp_path / "theirs"))
    ours.save(NAMES[0], token(0, iat=2000))
    theirs.save(NAMES[0], token(0, iat=1000, name="old"))
    theirs.save(NAMES[1], token(1))
    theirs.save(NAMES[2], token(2, exp=1))
    assert ours.merge("\n".join(theirs.pack())) == [NAMES[1]]
    assert ours.load(NAMES[0]) == token(0, iat=2000)
    for pack in ("x", "a|b|c", f"{jwts.user().public_key}|{token()}"):
        with pytest.raises(ResolverError):
            ours.merge(pack)


steps = st.lists(
    st.tuples(
        st.sampled_from(["save", "load", "delete", "expire"]), st.integers(0, 5), st.sampled_from("ab")
    ),
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_the_hash_is_that_of_the_files(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = DirStore(str(directory), delete=Delete.HARD, limit=3, evict=True)
    for step, at, name in steps:
        if step == "save":
            store.save(NAMES[at], f"{name}{at}")
        elif step == "load":
            store.load(NAMES[at])
        elif step == "delete":
            store.delete(NAMES[at])
        else:
            store.expire()
    files = [path.read_text() for path in directory.iterdir()]
    assert store.hash == digest(*files)
    assert len(store) == len(files) <= 3
    assert DirStore(str(directory)).hash == store.hash


# Servers and their requests


class Host:
    """A server with an operator; it keeps the changes that a resolver reports."""

    operator = OPERATOR.public_key
    system_account = SYSTEM.public_key
    strict = False

    def __init__(self) -> None:
        self.operator_keys = frozenset([OPERATOR.public_key])
        self.known: set[str] = set()
        self.changed: list[str] = []
        self.removed: list[str] = []

    def knows(self, account: str) -> bool:
        return account in self.known

    async def account_changed(self, name: str, token: str) -> None:
        self.changed.append(name)

    def account_removed(self, name: str) -> None:
        self.removed.append(name)


class Others:
    """Other servers: their replies, in order."""

    def __init__(self, *replies: bytes, servers: int = 1) -> None:
        self.replies = replies
        self.servers = servers
        self.asked: list[tuple[str, bytes]] = []

    def expected_servers(self) -> int:
        return self.servers

    async def request(self, subject: str, payload: bytes, wait: float) -> AsyncGenerator[bytes, None]:
        self.asked.append((subject, payload))
        for reply in self.replies:
            yield reply


class World:
    def __init__(
        self, directory: Path, kind: str = "full", others: SystemRequests | None = None, **more: Any
    ) -> None:
        options = ResolverOptions(kind, directory=str(directory), **more)
        self.log, self.host = Log(), Host()
        self.resolver = DirectoryResolver(options, self.log, others or NoOtherServers())
        self.resolver.host = self.host


def deletion(*accounts: object, signer: KeyPair = OPERATOR, sub: str = OPERATOR.public_key) -> bytes:
    return encode(GenericClaims(sub=sub, nats={"accounts": list(accounts)}), signer).encode()


async def test_a_resolver_runs_and_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.resolver.start()
    assert world.log.lines == [f"Managing all jwt in exclusive directory {tmp_path}"]
    await world.resolver.close()
    cache = World(tmp_path, "cache")
    cache.host.operator_keys = frozenset()
    with pytest.raises(ResolverError, match="no operator key found"):
        await cache.resolver.start()


async def test_another_server_is_asked_for_what_is_not_in_the_directory(tmp_path: Path) -> None:
    others = Others(b"", token().encode(), servers=2)
    world = World(tmp_path, others=others)
    assert await world.resolver.fetch(NAMES[0]) == token()
    assert others.asked == [(f"$SYS.REQ.ACCOUNT.{NAMES[0]}.CLAIMS.LOOKUP", b"")]
    assert await world.resolver.fetch(NAMES[0]) == token()
    assert len(others.asked) == 1


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        (Others(b"", b"", servers=2), "account jwt not found"),
        (Others(b"", servers=0), "account jwt not found"),
        (Others(b"", servers=2), "fetching jwt timed out"),
        (NoOtherServers(), "fetching jwt timed out"),
    ],
)
async def test_nobody_has_it(tmp_path: Path, others: SystemRequests, reason: str) -> None:
    with pytest.raises(ResolverError, match=reason):
        await World(tmp_path, others=others).resolver.fetch(NAMES[0])


@pytest.mark.parametrize("kind", ["full", "cache"])
async def test_updates(tmp_path: Path, kind: str) -> None:
    world = World(tmp_path, kind)
    world.host.known = {NAMES[0]}
    cache = " cache" if kind == "cache" else ""
    done = {"data": {"account": NAMES[0], "code": 200, "message": f"jwt updated{cache}"}}
    assert await world.resolver.update(token().encode()) == done
    assert await world.resolver.account_update(NAMES[0], token(name="y").encode()) == done
    assert world.host.changed == [NAMES[0]] * 2
    unknown = await world.resolver.update(token(1).encode())
    message = "jwt update cache skipped" if cache else "jwt updated"
    assert unknown == {"data": {"account": NAMES[1], "code": 200, "message": message}}
    assert len(world.resolver.files) == (1 if cache else 2)


async def test_updates_that_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)

    def failed(account: str, description: str) -> dict[str, object]:
        return {"error": {"account": account, "code": 500, "description": description}}

    update = world.resolver.update
    assert await update(b"x") == failed("n/a", "jwt update resulted in error - expected 3 chunks")
    assert await world.resolver.account_update(NAMES[1], token().encode()) == failed(
        NAMES[1], "jwt update resulted in error - subject does not match jwt content"
    )
    invalid = jwts.account_jwt(KEYS[0], OPERATOR, cluster_traffic="x")
    assert await update(invalid.encode()) == failed(
        NAMES[0], 'jwt validation failed - validation errors: [unknown cluster traffic option: "x"]'
    )
    world.host.strict = True
    assert await update(token().encode()) == failed(
        NAMES[0], "jwt update resulted in error - operator requires issuer to be a signing key"
    )
    assert world.host.changed == []


async def test_lookups_lists_and_packs(tmp_path: Path) -> None:
    world = World(tmp_path)
    for at in range(3):
        await world.resolver.update(token(at).encode())
    assert world.resolver.lookup(NAMES[0]) == token().encode()
    assert world.resolver.lookup(NAMES[5]) == b""
    assert world.resolver.lookup("x") is None
    listed = (await world.resolver.list_accounts())["data"]
    assert isinstance(listed, list)
    assert sorted(listed) == sorted(NAMES[:3])
    assert await world.resolver.pack(world.resolver.files.hash) == [b""]
    packed = await world.resolver.pack(bytes(32))
    assert packed[-1] == b""
    assert sorted(packed[:-1]) == sorted(f"{NAMES[at]}|{token(at)}".encode() for at in range(3))


async def test_a_server_gets_what_it_lacks(tmp_path: Path) -> None:
    there = World(tmp_path / "there")
    for at in range(2):
        await there.resolver.update(token(at).encode())
    others = Others(*await there.resolver.pack(bytes(32)), b"after the end")
    here = World(tmp_path / "here", others=others)
    await here.resolver.synchronize()
    assert others.asked == [(PACK_SUBJECT, bytes(32))]
    assert here.resolver.files.hash == there.resolver.files.hash
    assert sorted(here.host.changed) == sorted(NAMES[:2])
    await here.resolver.merge(b"garbage")
    assert "Merging resulted in error" in here.log.lines[-1]


async def test_a_reload_tells_the_server(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.resolver.update(token().encode())
    (tmp_path / f"{NAMES[0]}.jwt").write_text(token(name="y"))
    await world.resolver.reload()
    assert world.host.changed == [NAMES[0]] * 2


async def test_the_operator_deletes_accounts(tmp_path: Path) -> None:
    world = World(tmp_path, allow_delete=True)
    for at in range(2):
        await world.resolver.update(token(at).encode())
    reply = world.resolver.delete_accounts(deletion(NAMES[0], NAMES[5]))
    assert reply == {"data": {"code": 200, "message": "deleted 2 accounts"}}
    assert world.host.removed == [NAMES[0]]
    assert names(tmp_path) == {f"{NAMES[0]}.jwt.deleted", f"{NAMES[1]}.jwt"}


OTHER = jwts.operator()
DELETIONS: list[tuple[bytes, dict[str, Any], str]] = [
    (deletion(NAMES[0]), {"allow_delete": False}, "delete must be enabled in server config"),
    (deletion(NAMES[0], sub=OTHER.public_key), {}, "not self signed"),
    (deletion(NAMES[0], signer=OTHER, sub=OTHER.public_key), {}, "not trusted"),
    (deletion(NAMES[0], "x"), {}, "malformed request"),
    (deletion(NAMES[0], 5), {}, "malformed request"),
    (deletion(NAMES[0], SYSTEM.public_key), {}, "not allowed to delete system account"),
    (encode(GenericClaims(sub=OPERATOR.public_key), OPERATOR).encode(), {}, "malformed request"),
    (b"x", {}, "expected 3 chunks"),
]


@pytest.mark.parametrize(
    ("payload", "options", "reason"), DELETIONS, ids=[reason for _, _, reason in DELETIONS]
)
async def test_nobody_else_does(tmp_path: Path, payload: bytes, options: dict[str, Any], reason: str) -> None:
    world = World(tmp_path, **{"allow_delete": True} | options)
    await world.resolver.update(token().encode())
    error = world.resolver.delete_accounts(payload)["error"]
    assert isinstance(error, dict)
    assert error["description"].endswith(f"failed - {reason}")
    assert len(world.resolver.files) == 1
    assert world.host.removed == []


# A URL

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def answer(request: web.Request) -> web.Response:
    name = request.path.removeprefix("/jwt/")
    if name == NAMES[0]:
        return web.Response(text=token())
    return web.Response(status=404 if name else 200)


async def test_a_url_is_asked_for_each_account() -> None:
    async with served(answer) as port:
        resolver = URLResolver(f"http://127.0.0.1:{port}/jwt", 30.0)
        await resolver.start()
        assert await resolver.fetch(NAMES[0]) == token()
        with pytest.raises(
            ResolverError, match=f'could not fetch <"http://.*/jwt/{NAMES[1]}">: 404 Not Found'
        ):
            await resolver.fetch(NAMES[1])
        with pytest.raises(ResolverError, match="store operation not supported"):
            await resolver.store(NAMES[0], token())
        await resolver.close()


async def test_nobody_at_the_url_is_an_error_without_the_password() -> None:
    async with served(answer) as port:
        pass
    resolver = URLResolver(f"http://me:secret@127.0.0.1:{port}/jwt/", 30.0)
    with pytest.raises(ResolverError, match="could not fetch") as error:
        await resolver.start()
    assert "secret" not in str(error.value)
    await resolver.close()


async def test_a_url_that_does_not_answer_is_given_up() -> None:
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with served(hang) as port:
        resolver = URLResolver(f"http://127.0.0.1:{port}/", 0.05)
        with pytest.raises(ResolverError, match="no answer within"):
            await resolver.fetch(NAMES[0])
        release.set()
        await resolver.close()


async def test_an_endless_answer_is_given_up() -> None:
    async def flood(_: web.Request) -> web.Response:
        return web.Response(body=bytes((1 << 20) + 1))

    async with served(flood) as port:
        resolver = URLResolver(f"http://127.0.0.1:{port}/", 30.0)
        with pytest.raises(ResolverError, match="more than"):
            await resolver.fetch(NAMES[0])
        await resolver.close()


async def test_a_compressed_answer_is_not_unpacked() -> None:
    asked = []

    async def pack(request: web.Request) -> web.Response:
        asked.append(request.headers["Accept-Encoding"])
        return web.Response(body=gzip.compress(bytes(1 << 24)), headers={"Content-Encoding": "gzip"})

    async with served(pack) as port:
        resolver = URLResolver(f"http://127.0.0.1:{port}/", 30.0)
        with pytest.raises(
            ResolverError, match=r"the answer is compressed \(gzip\), which was not asked for"
        ):
            await resolver.fetch(NAMES[0])
        await resolver.close()
    assert asked == ["identity"]


async def test_an_answer_in_pieces_is_read_to_its_end() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for at in range(0, 3000, 1000):
            await response.write(token().encode()[at : at + 1000])
        return response

    async with served(drip) as port:
        resolver = URLResolver(f"http://127.0.0.1:{port}/", 30.0)
        assert await resolver.fetch(NAMES[0]) == token()[:3000]
        await resolver.close()


async def test_resolver_tls_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    tls = TLSOptions(ca_file=str(tmp_path / "none.pem"))
    resolver = URLResolver("https://127.0.0.1:1/", 30.0, tls)
    with pytest.raises(ResolverError, match="resolver_tls"):
        await resolver.start()
    await resolver.close()


def test_resolvers_are_built_as_the_options_say(tmp_path: Path) -> None:
    def build(options: ResolverOptions | None, url: str = "") -> Any:
        return build_resolver(Options(resolver=options), url, Log(), NoOtherServers())

    assert build(None) is None
    assert build(None, "http://localhost").kind == "url"
    for kind in ("mem", "url", "full", "cache"):
        assert build(ResolverOptions(kind, directory=str(tmp_path), url="http://localhost")).kind == kind


async def test_memory_has_what_was_stored() -> None:
    resolver = build_resolver(Options(resolver=ResolverOptions("mem")), "", Log(), NoOtherServers())
    assert resolver is not None
    await resolver.start()
    await resolver.store(NAMES[0], "x")
    assert await resolver.fetch(NAMES[0]) == "x"
    with pytest.raises(ResolverError, match="account missing"):
        await resolver.fetch(NAMES[1])
    await resolver.close()
