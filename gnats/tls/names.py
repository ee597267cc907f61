"""Distinguished names as text (RFC 4514), for user names in the configuration."""

DN = list[list[tuple[str, str]]]
"""RDNs, the most specific first; each is a list of (type, value) with an upper-case type."""

_ESCAPED = frozenset(' "#+,;<=>\\')
_HEX = frozenset("0123456789abcdefABCDEF")


def parse_dn(text: str) -> DN:
    """Parse a name like "CN=a,OU=b+L=c,O=d". Raises ValueError."""
    dn: DN = []
    rdn: list[tuple[str, str]] = []
    kind = ""
    word = bytearray()
    kept = 0  # the length of `word` without unescaped spaces at its end
    at, data = 0, text.encode()
    while at < len(data):
        char = chr(data[at])
        if char == "\\":
            at += 1
            pair = data[at : at + 2].decode("latin-1")
            if pair[:1] in _ESCAPED and pair:
                word += pair[:1].encode()
            elif len(pair) == 2 and set(pair) <= _HEX:
                word.append(int(pair, 16))
                at += 1
            else:
                raise ValueError(f"{text!r} ends or goes on badly after a backslash")
            kept = len(word)
        elif char == "=" and not kind:
            kind = word[:kept].decode(errors="replace").upper()
            word, kept = bytearray(), 0
            if data[at + 1 : at + 2] == b"#":
                raise ValueError(f"{text!r} has a value in BER, which is not supported")
        elif char in ",+":
            if not kind:
                raise ValueError(f"{text!r} has a value without a type")
            rdn.append((kind, word[:kept].decode(errors="replace")))
            kind, word, kept = "", bytearray(), 0
            if char == ",":
                dn.append(rdn)
                rdn = []
        elif char != " " or word:
            word.append(data[at])
            kept = len(word) if char != " " else kept
        at += 1
    if word:
        if not kind:
            raise ValueError(f"{text!r} ends with a value without a type")
        rdn.append((kind, word[:kept].decode(errors="replace")))
        dn.append(rdn)
    return dn


def same_dn(one: DN, other: DN) -> bool:
    """Check for the same RDNs in the same order; the order within an RDN does not matter."""
    return [sorted(rdn) for rdn in one] == [sorted(rdn) for rdn in other]


def same_rdns(one: DN, other: DN) -> bool:
    """Check for the same RDNs in any order."""
    return sorted(sorted(rdn) for rdn in one) == sorted(sorted(rdn) for rdn in other)
