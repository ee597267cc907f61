"""The dashboard and the index page: static files, and the headers that restrict browsers."""

import html
from functools import cache
from importlib.resources import files

from gnats.version import NATS_VERSION, __version__

FILES = {
    "index.html": "text/html",
    "app.css": "text/css",
    "app.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""The content types of the dashboard's files."""

POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_INDEX = {
    "dashboard": "Dashboard",
    "varz": "General",
    "jsz": "JetStream",
    "connz": "Connections",
    "accountz": "Accounts",
    "accstatz": "Account Stats",
    "subsz": "Subscriptions",
    "routez": "Routes",
    "leafz": "LeafNodes",
    "linkz": "Routes, leaf nodes and gateways together",
    "gatewayz": "Gateways",
    "raftz": "Raft Groups",
    "healthz": "Health Probe",
    "debug/vars": "Expvar",
    "metrics": "Prometheus metrics",
}


@cache
def static_file(name: str) -> tuple[bytes, str]:
    """Return (content, content type) of one of FILES."""
    return (files("gnats.monitor") / "static" / name).read_bytes(), FILES[name]


def index_page(base: str) -> str:
    """Return the page with links to the others, which are below the path `base`."""
    below = html.escape(base.rstrip("/"))
    links = "\n".join(f'<li><a href="{below}/{path}">{name}</a>' for path, name in _INDEX.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gnats</title>
<link rel="icon" href="{below}/dashboard/icon.svg">
<link rel="stylesheet" href="{below}/dashboard/app.css">
<main class="index">
<h1>gnats {__version__}</h1>
<p>as nats-server {NATS_VERSION}
<ul>
{links}
</ul>
</main>
</html>
"""
