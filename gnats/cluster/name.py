"""The name of a cluster: which of two that differ both servers use (isClusterNameDynamic, setClusterName)."""

from collections.abc import Callable

from gnats.options.values.cluster import ClusterOptions

Rename = Callable[[str, bool], object]
"""Called with a new name, and whether some server has made it up."""


class ClusterName:
    """This server's name of the cluster. `options` returns the current options, `rename` changes the name."""

    def __init__(self, options: Callable[[], ClusterOptions], rename: Rename) -> None:
        self._options = options
        self._rename = rename

    def __str__(self) -> str:
        return self._options().name

    @property
    def generated(self) -> bool:
        """Whether this server, or one that it took the name from, has made the name up."""
        return self._options().generated

    def agrees(self, theirs: str, *, generated: bool, keep_generated: bool = False) -> bool | None:
        """Return True if a peer has the same name, None if this server takes over the peer's, else False.

        A configured name takes the place of a generated one; of two generated ones the greater stays. A
        configured name counts as configured here, too, unless `keep_generated`: nats-server does so only
        when it comes with a CONNECT.
        """
        ours = str(self)
        if theirs == ours:
            return True
        if not theirs or not self.generated or (generated and theirs < ours):
            return False
        self._rename(theirs, generated or keep_generated)
        return None
