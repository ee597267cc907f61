"""A process that has imported gnats-server, and forks a process of it for each request.

Imports take most of the CPU of a server's start. A forked process runs `gnats.main.main` with the arguments,
the folder and the descriptors of the request, and ends as the command does. `forks` runs this:

    python forkserver.py COMMAND lean|web

`web` is for servers with a monitoring port: only they load aiohttp and ssl.

A request is one message on standard input, a Unix socket. "run" brings three descriptors; the answer is the
process id. The client sends "reap" when the process has ended; the answer is the status of waitpid. At the
end of its input the fork server kills the processes that still run, and ends.
"""

from __future__ import annotations

import os
import sys

command, form = sys.argv[1:]
sys.path[0] = os.path.dirname(command)  # where Python starts the command with  # noqa: PTH120

import gc  # noqa: E402

if form == "lean":
    from gnats.commands.footprint import import_loop_without_ssl

    import_loop_without_ssl()
else:
    import gnats.monitor.http

import array  # noqa: E402
import json  # noqa: E402
import socket  # noqa: E402
from pathlib import Path  # noqa: E402
from signal import SIGKILL  # noqa: E402
from typing import Any  # noqa: E402

import gnats.jetstream.control.jetstream  # noqa: E402
import gnats.options.keys  # noqa: E402
import gnats.server.log  # noqa: E402
import gnats.server.server  # noqa: E402, F401
from gnats.main import main  # noqa: E402

LONGEST = 1 << 17
"""Bytes of the longest request."""


def serve() -> None:
    """Answer requests until the input ends, then exit. Return only in a forked process."""
    children: set[int] = set()
    with socket.socket(fileno=0) as requests:
        while True:
            data, control, _, _ = requests.recvmsg(LONGEST, socket.CMSG_SPACE(3 * array.array("i").itemsize))
            if not data:
                break
            request = json.loads(data)
            if request["do"] == "reap":
                children.discard(request["pid"])
                requests.send(json.dumps(os.waitpid(request["pid"], 0)[1]).encode())
                continue
            descriptors = array.array("i", control[0][2])
            pid = os.fork()
            if not pid:
                requests.detach()
                become(request, descriptors)
                return
            for fd in descriptors:
                os.close(fd)
            children.add(pid)
            requests.send(json.dumps(pid).encode())
    for pid in children:
        os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
    sys.exit()


def become(request: dict[str, Any], descriptors: array.array[int]) -> None:
    """Set descriptors, folder, arguments and process name as if this process had just been started."""
    for standard, fd in enumerate(descriptors):
        os.dup2(fd, standard)
        os.close(fd)
    os.chdir(request["cwd"])
    sys.argv[:] = [command, *request["args"]]
    Path("/proc/self/comm").write_text(Path(command).name)


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # without it a collection in a child would copy all pages
    serve()
    sys.exit(main())
