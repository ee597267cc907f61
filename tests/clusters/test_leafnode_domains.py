"""Which server's JetStream answers at either end of a leaf node, by the domains: pairs of all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.servers import Kind, until

from .domains import HUB, LEAF, NO_DOMAIN, STREAMS, answers, api, domains
from .members import Client, few_pairs, named

pytestmark = pytest.mark.timeout(120)
KINDS = pytest.mark.parametrize("kinds", few_pairs(), ids=named)

NOBODY, SILENT = "nobody", "silent"
PREFIXES = ("$JS.API", "$JS.hub.API", "$JS.leaf.API")


def who(client: Client, prefix: str, ends: Sequence[Client], others: Sequence[Client], least: int) -> str:
    """Return the servers that answer requests with that prefix: each has a stream with its name.

    `ends` are clients of that account, and `others` of another without JetStream, at both servers. Wait for
    `least` answers.
    """
    inbox = client.ask(f"{prefix}.STREAM.NAMES")
    answers = [client.next_on(inbox) for _ in range(least)]
    for end in ends:  # Both servers have the request,
        if end is not client:
            end.heard(client)
    for other in others:  # and have answered others since,
        other.request("$JS.API.STREAM.NAMES")
    heard = client.heard(*ends)  # and more answers would have come.
    answers += [message for message in heard if message.subject == inbox]
    if not answers:
        return SILENT
    return " ".join(NOBODY if each.status == "503" else _answerer(each.json) for each in answers)


def _answerer(answer: Any) -> str:
    if "error" in answer:
        return f"error {answer['error']['err_code']}"
    return str(*answer["streams"])


def default(domain: str) -> str:
    return f"default_js_domain {{ A: '{domain}' }}"


H, L, BOTH = ("HUB", "HUB"), ("LEAF", "LEAF"), ("HUB", "LEAF")
NONE, MUTE = (NOBODY, NOBODY), (SILENT, SILENT)
CASES = {
    # The lines of the two servers, those of their accounts, and for each of PREFIXES: the server that answers
    # a client of the hub, and a client of the leaf.
    "two domains": ((HUB, LEAF), (STREAMS, STREAMS), BOTH, H, L),
    "a domain at the hub": ((HUB, NO_DOMAIN), (STREAMS, STREAMS), BOTH, H, NONE),
    "a domain at the leaf": ((NO_DOMAIN, LEAF), (STREAMS, STREAMS), BOTH, NONE, L),
    "no domains": ((NO_DOMAIN, NO_DOMAIN), (STREAMS, STREAMS), BOTH, NONE, NONE),
    "one domain": ((HUB, HUB), (STREAMS, STREAMS), BOTH, BOTH, NONE),
    "at the hub": ((HUB, ""), (STREAMS, ""), ("HUB", NOBODY), H, NONE),
    "at the hub without a domain": ((NO_DOMAIN, ""), (STREAMS, ""), ("HUB", NOBODY), NONE, NONE),
    "at the leaf": (("", LEAF), ("", STREAMS), (NOBODY, "LEAF"), NONE, L),
    "at the leaf without a domain": (("", NO_DOMAIN), ("", STREAMS), (NOBODY, "LEAF"), NONE, NONE),
    "not in the leaf's account": ((HUB, LEAF), (STREAMS, ""), ("HUB", SILENT), H, MUTE),
    "not in the hub's account": ((HUB, LEAF), ("", STREAMS), (SILENT, "LEAF"), MUTE, L),
    "the leaf's default is the hub": ((HUB, default("hub")), (STREAMS, ""), H, H, NONE),
    "the hub's default is the leaf": ((default("leaf"), LEAF), ("", STREAMS), L, NONE, L),
    "the leaf's default is empty": ((NO_DOMAIN, default("")), (STREAMS, ""), H, NONE, NONE),
    "both defaults are empty": ((f"{NO_DOMAIN}\n{default('')}", default("")), (STREAMS, ""), H, NONE, NONE),
    "a default beside a domain": ((HUB, f"{LEAF}\n{default('hub')}"), (STREAMS, ""), H, H, MUTE),
    "a domain without streams": (
        (HUB, "jetstream { enabled: false, domain: hub }"),
        (STREAMS, ""),
        ("HUB", NOBODY),
        H,
        NONE,
    ),
    "the leaf extends": (
        (NO_DOMAIN, "jetstream { enabled: false, extension_hint: will_extend }"),
        (STREAMS, ""),
        ("HUB", NOBODY),
        NONE,
        NONE,
    ),
}


def check(
    directory: Path, kinds: tuple[Kind, Kind], own: tuple[str, str], *wanted: tuple[str, str], **how: Any
) -> None:
    """Run a hub and a leaf. For each of PREFIXES, check which server answers a client of either.

    `own` and `how`: see Domains.
    """
    with ExitStack() as stack:
        pair = stack.enter_context(domains(directory, kinds, own=own, **how))
        ends = [stack.enter_context(Client(server)) for server in pair.servers]
        others = [stack.enter_context(Client(server, "b")) for server in pair.servers]
        for client, name, streams in zip(ends, ("HUB", "LEAF"), own, strict=True):
            if streams:
                config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"}
                api(client, f"$JS.API.STREAM.CREATE.{name}", config)
            client.reachable_from(*ends)
        found = {
            prefix: tuple(
                who(end, prefix, ends, others, each != SILENT)
                for end, each in zip(ends, answers, strict=True)
            )
            for prefix, answers in zip(PREFIXES, wanted, strict=True)
        }
        assert found == dict(zip(PREFIXES, wanted, strict=True))


@KINDS
@pytest.mark.parametrize("case", CASES)
def test_who_answers(tmp_path: Path, kinds: tuple[Kind, Kind], case: str) -> None:
    top, own, *answer = CASES[case]
    check(tmp_path, kinds, own, *answer, top=top)


def limited(what: str) -> dict[str, Any]:
    """Deny subjects of JetStream to the user of the leaf at the hub."""
    permissions = f"permissions {{ {what} {{ deny: '$JS.>' }} }}"
    return {"users": (f", {{ user: l, password: p, {permissions} }}", ""), "user": "l"}


DENIALS: dict[str, tuple[dict[str, Any], tuple[str, str], tuple[str, str]]] = {
    # How the leaf connects, and the answers to requests with the hub's domain and with the leaf's.
    "exports": ({"remote": "deny_exports: '$JS.>'"}, ("HUB", NOBODY), L),
    "imports": ({"remote": "deny_imports: '$JS.>'"}, ("HUB", NOBODY), (NOBODY, "LEAF")),
    "both": (
        {"remote": "deny_exports: '$JS.>', deny_imports: '$JS.>'"},
        ("HUB", NOBODY),
        (NOBODY, "LEAF"),
    ),
    "the user may not publish": (limited("publish"), ("HUB", NOBODY), L),
    "the user may not subscribe": (limited("subscribe"), ("HUB", NOBODY), (NOBODY, "LEAF")),
}


@KINDS
@pytest.mark.parametrize("case", DENIALS)
def test_denials(tmp_path: Path, kinds: tuple[Kind, Kind], case: str) -> None:
    """Deny $JS.>. Where a side may not receive something, it does not send it through wildcards either."""
    how, *answer = DENIALS[case]
    check(tmp_path, kinds, (STREAMS, STREAMS), BOTH, *answer, **how)


@KINDS
@pytest.mark.parametrize("ends", [(0, 1), (1, 0)], ids=["to the leaf", "to the hub"])
def test_limits_of_the_account(tmp_path: Path, kinds: tuple[Kind, Kind], ends: tuple[int, int]) -> None:
    limits = "jetstream { max_mem: 1M, max_streams: 2, max_consumers: 1 }"
    with (
        domains(tmp_path, kinds, own=(limits, limits)) as pair,
        Client(pair[ends[0]]) as client,
    ):
        prefix = f"$JS.{('hub', 'leaf')[ends[1]]}.API"
        until(lambda: answers(client, f"{prefix}.INFO"))

        def make(name: str, **config: Any) -> Any:
            body = {"name": name, "storage": "memory", "subjects": [name]} | config
            return (
                client.request(f"{prefix}.STREAM.CREATE.{name}", body).json.get("error", {}).get("err_code")
            )

        def consume(name: str) -> Any:
            body = {"stream_name": "S1", "config": {"name": name, "durable_name": name}}
            answer = client.request(f"{prefix}.CONSUMER.CREATE.S1.{name}", body).json
            return answer.get("error", {}).get("err_code")

        assert make("S1", max_bytes=2_000_000) == 10028
        assert [make("S1"), make("S2"), make("S3")] == [None, None, 10027]
        assert [consume("C1"), consume("C2")] == [None, 10026]
        until(lambda: answers(client, "S1"))
        payload = b"x" * 600_000
        acks = [client.request("S1", payload).json.get("error", {}).get("err_code") for _ in range(2)]
        assert acks == [None, 10002]
