"""How two servers compress what they send each other: each decides for itself, from both configurations."""

from collections.abc import Sequence

from gnats.go.text import quote
from gnats.options.values.cluster import (
    ACCEPT,
    NOT_SUPPORTED,
    OFF,
    S2_AUTO,
    S2_BEST,
    S2_BETTER,
    S2_FAST,
    S2_UNCOMPRESSED,
)

_LEVELS = (S2_UNCOMPRESSED, S2_FAST, S2_BETTER, S2_BEST)
"""What a server that decides by the round trip time uses, from the shortest one on."""
_COMPRESSING = (S2_AUTO, *_LEVELS)


class UnknownModeError(ValueError):
    """The peer's INFO has a mode that there is not."""


def negotiates(mode: str) -> bool:
    """Whether a server with this mode agrees on one with its peers (needsCompression)."""
    return mode not in ("", OFF, NOT_SUPPORTED)


def choose_mode(ours: str, theirs: str) -> str:
    """Return the mode of what we send (selectCompressionMode); S2_AUTO: the round trip time decides.

    `theirs` is "" from a server that knows of no compression. Raises UnknownModeError.
    """
    if ours == NOT_SUPPORTED or not theirs:
        return NOT_SUPPORTED
    if ours == OFF:
        return OFF
    if theirs == NOT_SUPPORTED:
        return NOT_SUPPORTED
    if theirs in (OFF, ACCEPT):
        return OFF if theirs == OFF or ours == ACCEPT else ours
    if theirs not in _COMPRESSING:
        raise UnknownModeError(f"unsupported route compression mode {quote(theirs)}")
    if ours != ACCEPT:
        return ours
    return S2_FAST if theirs == S2_AUTO else theirs


def level_for(rtt: float, thresholds: Sequence[float]) -> str:
    """Return the level for a round trip time: both in seconds (selectS2AutoModeBasedOnRTT).

    Each threshold ends the range of a level; a level whose threshold is 0 is not used.
    """
    for level, threshold in zip(_LEVELS, thresholds, strict=False):
        if rtt <= threshold:
            return level
    return S2_BEST if len(thresholds) >= len(_LEVELS) - 1 else _LEVELS[len(thresholds) - 1]


def shown_mode(configured: str, negotiated: str) -> str:
    """Return the mode that a peer is told (compressionModeForInfoProtocol)."""
    return S2_AUTO if configured == S2_AUTO else negotiated
