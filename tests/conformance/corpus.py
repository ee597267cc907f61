"""Inputs with every verb, good and bad, each small enough to be cut at every byte."""

from __future__ import annotations

from .cases import HEADERS, NO_RESPONDERS, QUIET

_HEADER = b"NATS/1.0\r\nA: 1\r\n\r\n"  # 18 bytes
_Q = b'CONNECT {"verbose":false}\r\n'
_H = b'CONNECT {"verbose":false,"headers":true}\r\n'

CORPUS: dict[str, bytes] = {
    "connect and pings": QUIET + b"PING\r\nPING\r\n",
    "connect of protocol 1": b'CONNECT {"verbose":false,"protocol":1,"name":"a b"}\r\nPING\r\nPONG\r\n',
    "connect twice": _Q + b"SUB zzzz 1\r\n" + _Q + b"PUB zzzz 1\r\nx\r\n",
    "verbose session": b"CONNECT {}\r\nSUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\nUNSUB 1\r\nPING\r\n+OK\r\nPONG\r\n",
    "sub, pub, unsub": _Q + b"SUB zzzz 1\r\nPUB zzzz 5\r\nhello\r\nUNSUB 1\r\nPUB zzzz 5\r\nhello\r\n",
    "pub with reply": _Q + b"SUB zzzz.> 1\r\nPUB zzzz.a zzzz.re 3\r\nabc\r\n",
    "pub of nothing": _Q + b"SUB zzzz 1\r\nPUB zzzz 0\r\n\r\nPUB zzzz 0\r\n\r\n",
    "pub of line ends": _Q + b"SUB zzzz 1\r\nPUB zzzz 6\r\n\r\n\r\n\r\n\r\nPUB zzzz 1\r\n\n\r\n",
    "pub of verbs": _Q + b"SUB zzzz 1\r\nPUB zzzz 18\r\nPING\r\nPUB zzzz 1\r\n\r\n",
    "pub with tabs and LF": _Q + b"SUB\tzzzz \t 1\nPUB \t zzzz\t\t3 \nabc\r\nUNSUB\t1\n",
    "pub of many": _Q + b"SUB zzzz 1\r\n" + b"PUB zzzz 1\r\na\r\n" * 5,
    "lower case": b'connect {"verbose":false}\r\nsub zzzz 1\r\npub zzzz 2\r\nhi\r\nunsub 1\r\nping\r\n',
    "hpub": _H + b"SUB zzzz 1\r\nHPUB zzzz 18 20\r\n" + _HEADER + b"hi\r\nPUB zzzz 2\r\nhi\r\n",
    "hpub with reply": _H + b"SUB zzzz 1\r\nHPUB zzzz re.ply 18 18\r\n" + _HEADER + b"\r\n",
    "hpub with sizes of 0": _H + b"SUB zzzz 1\r\nHPUB zzzz 0 0\r\n\r\nHPUB zzzz 0 1\r\nx\r\n",
    "no responders": NO_RESPONDERS + b"SUB zzzz.in 1\r\nPUB zzzz zzzz.in 2\r\nhi\r\n",
    "queue": _Q + b"SUB zzzz q 1\r\nSUB zzzz 2\r\nPUB zzzz 2\r\nhi\r\n",
    "auto-unsubscribe": _Q + b"SUB zzzz 1\r\nUNSUB 1 2\r\n" + b"PUB zzzz 1\r\nx\r\n" * 3,
    "wildcards": QUIET + b"SUB zzzz.*.b 1\r\nSUB zzzz.> 2\r\nPUB zzzz.x.y 1\r\n1\r\nPUB zzzz.> 1\r\n3\r\n",
    "no echo": b'CONNECT {"verbose":false,"echo":false}\r\nSUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\n',
    "info and ok": b'INFO {"port":1}\r\n+OK\r\nPING\r\ninfo{}\n+ok\n',
    "ping with text": b"PING some text\r\nPONG more text\r\nPINGING\r\n",
    "bad subjects": QUIET + b"SUB zzzz..a 1\r\nSUB zzzz.> 2\r\nSUB zzzz.>.a 3\r\nPUB zzzz. 1\r\nx\r\n",
    "reserved": _Q + b"PUB $NRG.x 1\r\nx\r\nPUB zzzz _R_.x 1\r\nx\r\nSUB zzzz _sys_ 1\r\n",
    "unknown verb": QUIET + b"PING\r\nFOO\r\nPING\r\n",
    "unknown end of a verb": b"PING\r\nSUX zzzz 1\r\n",
    "empty line": b"PING\r\n\r\nPING\r\n",
    "err": _Q + b"SUB zzzz 1\r\nPUB zzzz 1\r\nx\r\n-ERR 'good bye'\r\nPING\r\n",
    "bad connect": b'CONNECT {"verbose":1}\r\nPING\r\n',
    "bad info": b"INFO {x}\r\nPING\r\n",
    "bad pub": _Q + b"SUB zzzz 1\r\nPUB zzzz 1\r\nx\r\nPUB zzzz x\r\nPING\r\n",
    "bad hpub": _H + b"HPUB zzzz 20 18\r\n" + _HEADER + b"\r\nPING\r\n",
    "bad sub": _Q + b"SUB zzzz q 1 2\r\nPING\r\n",
    "bad unsub": _Q + b"UNSUB 1 2 3\r\nPING\r\n",
    "hpub without headers": _Q + b"HPUB zzzz 18 18\r\n" + _HEADER + b"\r\nPING\r\n",
    "payload too long": _Q + b"SUB zzzz 1\r\nPUB zzzz 2\r\nhigh\r\nPING\r\n",
    "payload without CR": _Q + b"SUB zzzz 1\r\nPUB zzzz 2\r\nhi\nPING\r\n",
    "payload above the maximum": _Q + b"SUB zzzz 1\r\nPUB zzzz 1\r\nx\r\nPUB zzzz 1048577\r\nxxxx",
    "bad protocol": b'CONNECT {"protocol":3}\r\nPING\r\n',
    "a route's verb": b"PING\r\nRS+ $G zzzz\r\n",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "unfinished line": _Q + b"SUB zzzz 1\r\nPUB zzzz 1\r\nx\r\nSUB zzzz.x",
    "unfinished payload": HEADERS + b"SUB zzzz 1\r\nPUB zzzz 1\r\nx\r\nPUB zzzz 20\r\nhi",
}
