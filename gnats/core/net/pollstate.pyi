"""The part of a poller that its connections use."""

from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.state import ServerState

class PollerBase:
    @property
    def inbox(self) -> Inbox: ...
    @property
    def state(self) -> ServerState: ...
