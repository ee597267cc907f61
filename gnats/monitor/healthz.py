"""/healthz: is the server well (Healthz in monitor.go)?"""

from typing import TYPE_CHECKING

from gnats.monitor.options import HealthzOptions
from gnats.monitor.render import Page

if TYPE_CHECKING:
    from gnats.server import Server

OK, BAD_REQUEST, INTERNAL_ERROR = 200, 400, 500


def healthz(server: "Server", options: HealthzOptions) -> Page:
    """`status` ("ok" or "error"), `status_code` as of HTTP, and `error` or, with details, `errors`."""
    for missing, asked, what in (
        ("account", options.stream, "stream"),
        ("stream", options.consumer, "consumer"),
    ):
        if asked and not getattr(options, missing):
            problem = f'"{missing}" must not be empty when checking {what} health'
            return _unwell(BAD_REQUEST, "BAD_REQUEST", problem, options.details)
    if not server.accepting:
        problem = "failed to be ready for connections after 1ms: server"
        return _unwell(INTERNAL_ERROR, "CONNECTION", problem, options.details)
    return {"status": "ok", "status_code": OK}


def _unwell(code: int, kind: str, error: str, details: bool) -> Page:
    page: Page = {"status": "error", "status_code": code}
    if details:
        return page | {"errors": [{"type": kind, "error": error}]}
    return page | {"error": error}
