"""Which servers may connect: by password or certificate (isRouterAuthorized, isGatewayAuthorized)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gnats.auth.passwords import TooManyWaitError, check_password, check_password_async, is_bcrypt
from gnats.cluster.certificates import Wanted, check_certificate
from gnats.cluster.link_connection import LinkConnection

if TYPE_CHECKING:
    from asyncio import Task

    from gnats.log.logger import Logger


class Login:
    """Checks the login of servers. `wanted` returns what the present options ask for."""

    def __init__(self, log: "Logger", wanted: Callable[[], Wanted]) -> None:
        self._log = log
        self._wanted = wanted

    def check(self, link: LinkConnection[Any]) -> bool | None:
        """Return whether a peer may connect, with its CONNECT; None: check_hash() finds that out."""
        wanted = self._wanted()
        if wanted.tls and (wanted.tls.verify_and_map or wanted.tls.check_known_urls):
            return self._check_certificate(link, wanted)
        if not wanted.username:
            return True
        if wanted.username != link.connect.user:
            return False
        if is_bcrypt(wanted.password):
            return None
        return check_password(wanted.password, link.connect.password)

    def _check_certificate(self, link: LinkConnection[Any], wanted: Wanted) -> bool:
        good, why = check_certificate(link.peer_certificate(), wanted)
        self._log.debug(f"{link} - {why}")
        return good

    def watch(self, link: LinkConnection[Any], checking: "Task[None]", refuse: Callable[[], None]) -> None:
        """Refuse the peer when the task that checks its hash raises an unexpected error."""

        def ended(checking: "Task[None]") -> None:
            if not checking.cancelled() and (exc := checking.exception()):
                self._log.error(f"{link} - Authentication failed: {exc!r:.500}")
                refuse()

        checking.add_done_callback(ended)

    async def check_hash(self, link: LinkConnection[Any]) -> bool:
        """Compare a peer's password with a hash, that of the options at the end."""
        stored, good = "", False
        while stored != (stored := self._wanted().password):  # a reload may change it meanwhile
            good = await self._compare(link, stored)
        return good

    async def _compare(self, link: LinkConnection[Any], stored: str) -> bool:
        try:
            return await check_password_async(stored, link.connect.password, link.host)
        except TooManyWaitError as exc:
            self._log.debug(f"{link} - {exc}")
            return False
