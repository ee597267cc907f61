"""URLs of other servers (parseURL, parseURLs in opts.go)."""

from gnats.conf import Token
from gnats.go.text import quote
from gnats.go.url import URL, parse_url
from gnats.options.keys.values import ConfigError, Problems, Read, array, string


def server_urls(what: str) -> Read:
    """Make a reader of an array of URLs; `what` names their kind in errors."""

    def read(key: str, token: Token, problems: Problems) -> tuple[URL, ...]:
        urls: dict[str, URL] = {}
        for item in array(key, token):
            text = string(f"an item of {key}", item, problems)
            if text in urls:
                problems.misuse(text, item, f"Duplicate {what} entry detected")
                continue
            try:
                urls[text] = server_url(what, text, item)
            except ConfigError as exc:
                problems.error(item, str(exc))
        return tuple(urls.values())

    return read


def server_url(what: str, text: str, token: Token) -> URL:
    """Read one URL, whose token shows its place. Raises ConfigError."""
    try:
        return parse_url(text.strip())
    except ValueError as exc:
        raise ConfigError(token, f"error parsing {what} url [{quote(text)}]: {exc}") from None
