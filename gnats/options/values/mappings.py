"""Compiles the subject mappings of an account for the data plane (AddWeightedMappings in accounts.go)."""

from collections.abc import Iterable
from itertools import accumulate

from gnats.core.subjects.subject import has_wildcard, valid_subject
from gnats.core.subjects.transform import SubjectTransform, transform_tokenize, validate_mapping
from gnats.errors import OptionError
from gnats.go.text import quote, text_bytes
from gnats.options.values.accounts import MapDest, Mapping

Row = tuple[bytes, list[tuple[SubjectTransform, int]]]


def compile_mappings(mappings: Iterable[Mapping], cluster: str = "") -> list[Row]:
    """Compile mappings for a server of `cluster`; returns the argument of Account.set_mappings().

    The last mapping of a source counts. Raises ValueError with nats-server's text.
    """
    rows: dict[str, Row] = {}
    for mapping in mappings:
        rows[mapping.source] = text_bytes(mapping.source), _destinations(mapping, cluster)
    return list(rows.values())


def compile_account_mappings(account: str, mappings: Iterable[Mapping], cluster: str = "") -> list[Row]:
    """Compile the mappings of an account of the configuration. Raises OptionError."""
    try:
        return compile_mappings(mappings, cluster)
    except ValueError as exc:
        raise OptionError(f"account {quote(account)}: Error adding mapping: {exc}") from None


def _destinations(mapping: Mapping, cluster: str) -> list[tuple[SubjectTransform, int]]:
    source = mapping.source
    if not valid_subject(source):
        raise ValueError("invalid subject")
    seen: set[str] = set()
    total: dict[str, int] = {}
    scopes: dict[str, list[MapDest]] = {"": []}
    for dest in mapping.dests:
        if dest.subject in seen:
            raise ValueError(f"duplicate entry for {quote(dest.subject)}")
        seen.add(dest.subject)
        if dest.weight > 100:
            raise ValueError("individual weights need to be <= 100")
        total[dest.cluster] = total.get(dest.cluster, 0) + dest.weight
        if total[dest.cluster] > 100:
            raise ValueError("total weight needs to be <= 100")
        validate_mapping(source, dest.subject)
        SubjectTransform(source, dest.subject)
        scopes.setdefault(dest.cluster, []).append(dest)
    dests = scopes.get(cluster, scopes[""])
    chosen = [(SubjectTransform(source, dest.subject), dest.weight) for dest in dests]
    weight = sum(dest.weight for dest in dests)
    if weight != 100 and source not in seen:
        # The remaining messages keep their subject. A mapping that names its source as a destination
        # loses them instead.
        same = transform_tokenize(source) if has_wildcard(source) else source
        chosen.append((SubjectTransform(source, same), 100 - weight))
    chosen.sort(key=lambda choice: choice[1])
    return list(zip((t for t, _ in chosen), accumulate(w for _, w in chosen), strict=True))


def domain_mappings(domain: str, *, system: bool, besides: Iterable[Row]) -> list[Row]:
    """Map the API subjects of a domain to the server's own (generateJSMappingTable in jetstream_api.go).

    `system` is True for the system account. `besides` are the account's own mappings, which take precedence.
    Returns an empty list without a domain.
    """
    if not domain:
        return []
    prefix = f"$JS.{domain}.API."
    there = {source for source, _ in besides}
    table = {">": "$JS.API.>"} if system else _DOMAIN_API
    mappings = [Mapping(prefix + source, (MapDest(dest),)) for source, dest in table.items()]
    return compile_mappings(each for each in mappings if text_bytes(each.source) not in there)


def default_domain_mappings(domain: str, besides: Iterable[Row]) -> list[Row]:
    """Map the API subjects without a domain to those of `domain`, for an account without JetStream.

    `besides` are the account's own mappings; they are returned, too, but for those that are replaced.
    """
    prefix = f"$JS.{domain}.API."
    rows = compile_mappings(
        Mapping(dest, (MapDest(prefix + source),)) for source, dest in _DOMAIN_API.items()
    )
    replaced = {source for source, _ in rows}
    return [row for row in besides if row[0] not in replaced] + rows


_PARTS = ("STREAM", "CONSUMER", "DIRECT", "META", "SERVER", "ACCOUNT")
_DOMAIN_API = {
    "INFO": "$JS.API.INFO",
    **{f"{part}.>": f"$JS.API.{part}.>" for part in _PARTS},
    "$KV.>": "$KV.>",
    "$OBJ.>": "$OBJ.>",
}
