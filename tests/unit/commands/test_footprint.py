"""The server's process loads only modules that it uses."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_loop_runs_without_ssl_and_ssl_can_still_be_imported() -> None:
    program = """
import sys
from gnats.commands.footprint import import_loop_without_ssl
import_loop_without_ssl()
assert "_ssl" not in sys.modules and "ssl" not in sys.modules
import asyncio, uvloop
async def main():
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello")
    print((await reader.read(5)).decode())
    writer.close()
async def echo(reader, writer):
    writer.write(await reader.read(5))
    writer.close()
async def serve():
    global server
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    await main()
    server.close()
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(serve())
import ssl
assert ssl.create_default_context() is not None
"""
    assert run(program) == "hello"


def test_nothing_is_replaced_once_asyncio_is_there() -> None:
    program = """
import asyncio, sys
from gnats.commands.footprint import import_loop_without_ssl
import_loop_without_ssl()
print(sys.modules["ssl"].__name__, asyncio.sslproto.ssl is not None)
"""
    assert run(program) == "ssl True"


@pytest.mark.parametrize("arg", ["-v", "-h", "-zz"])
def test_a_command_that_only_prints_does_not_load_the_server(arg: str) -> None:
    program = f"""
import contextlib, io, sys
from gnats.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main([{arg!r}])
unwanted = {{"asyncio", "uvloop", "json", "gnats.server", "argparse", "aiohttp"}}
print(sorted(unwanted & set(sys.modules)))
"""
    assert run(program) == "[]"


def test_importing_gnats_loads_nothing_else_of_it() -> None:
    assert run("import gnats, sys; print(sorted(m for m in sys.modules if m.startswith('gnats')))") == (
        "['gnats', 'gnats.version']"
    )
