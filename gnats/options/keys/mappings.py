"""Subject mappings of an account (parseAccountMappings in opts.go)."""

from gnats.conf import Token
from gnats.core.subjects.subject import valid_subject
from gnats.go.text import quote
from gnats.options.keys.values import ConfigError, Problems, block, keys, percentage, read_block, string
from gnats.options.values.accounts import MapDest, Mapping


def mappings(key: str, token: Token, problems: Problems) -> list[Mapping]:
    """Read a block of mappings: by source, one destination or an array of weighted ones."""
    from gnats.options.values.mappings import compile_mappings

    found: list[Mapping] = []
    for source, each in block(key, token).items():
        if not valid_subject(source.encode("utf-8", "surrogateescape")):
            problems.error(each, f"Subject {quote(source)} is not a valid subject")
            continue
        try:
            mapping = Mapping(source, tuple(_dests(source, each, problems)))
            compile_mappings([mapping])
        except ConfigError as exc:
            problems.error(exc.token, str(exc))
        except ValueError as exc:
            problems.error(each, f"Error adding mapping for {quote(source)} : {exc}")
        else:
            found.append(mapping)
    return found


def _dests(source: str, token: Token, problems: Problems) -> list[MapDest]:
    if isinstance(token.value, str):
        return [MapDest(token.value)]
    if isinstance(token.value, list):
        return [_dest(source, item, problems) for item in token.value]
    return [_dest(source, token, problems)]


def _dest(source: str, token: Token, problems: Problems) -> MapDest:
    found = read_block(
        _DEST,
        f"the mapping of {quote(source)}",
        token,
        problems,
        "Unknown field {} for mapping destination",
        False,
    )
    if "weight" not in found:
        raise ConfigError(token, f"Missing weight for mapping destination {quote(found.get('subject', ''))}")
    return MapDest(**{"subject": "", **found})


_DEST = keys(
    ("subject", string, "dest destination"),
    ("weight", percentage(0), "weight"),
    ("cluster", string, "cluster"),
)
