"""The text of results, as nats-bench prints them."""

from collections.abc import Sequence
from statistics import fmean, pstdev

from gnats.bench.histogram import Histogram
from gnats.bench.results import PubSubResult, RequestResult, Sample


def human_bytes(count: float) -> str:
    """Format bytes in units of 1024: 1536 -> '1.50 KB'."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} TB"


def rate(messages: int, size: int, seconds: float) -> str:
    """Format a rate; `size` is the bytes of all messages together."""
    return f"{messages / seconds:,.0f} msgs/sec ~ {human_bytes(size / seconds)}/sec"


def microseconds(latency: Histogram) -> str:
    """Format the main percentiles, in microseconds."""
    names = (("P50", 50.0), ("P99", 99.0), ("P99.9", 99.9))
    return " | ".join(f"{name} {latency.percentile(percent) / 1000:,.1f} us" for name, percent in names)


def _group(label: str, samples: Sequence[Sample], indent: str) -> list[str]:
    longest = max(sample.seconds for sample in samples)
    total = rate(sum(s.messages for s in samples), sum(s.bytes for s in samples), longest)
    lines = [f"{indent}{label} stats: {total}"]
    if len(samples) > 1:
        rates = [sample.messages / sample.seconds for sample in samples]
        lines += [
            f"{indent} [{number}] {rate(s.messages, s.bytes, s.seconds)} ({s.messages} msgs)"
            for number, s in enumerate(samples, 1)
        ]
        lines.append(
            f"{indent} min {min(rates):,.0f} | avg {fmean(rates):,.0f} | max {max(rates):,.0f}"
            f" | stddev {pstdev(rates):,.0f} msgs"
        )
    return lines


def pubsub(result: PubSubResult) -> str:
    """Format the totals, then the publishers and subscribers, one line for each of several connections."""
    both = bool(result.publishers and result.subscribers)
    lines = []
    if both:
        lines.append(f"NATS Pub/Sub stats: {rate(result.messages, result.bytes, result.seconds)}")
    if result.publishers:
        lines += _group("Pub", result.publishers, " " if both else "")
    if result.subscribers:
        lines += _group("Sub", result.subscribers, " " if both else "")
    return "\n".join(lines)


def requests(result: RequestResult) -> str:
    """Format the requesters and the latency of replies."""
    return "\n".join([*_group("Request", result.requesters, ""), f" {microseconds(result.latency)}"])
