"""A histogram of durations, like HdrHistogram: a bucket is at most 1/64 of its value wide.

It has a fixed size, and adds without the GIL. Durations beyond its range count in the last bucket.
"""
from gnats.bench.sys cimport log2_floor


cdef inline int bucket_of(uint64_t ns) noexcept nogil:
    """Return the bucket of a duration: one for each value below 128 ns, above it 64 for each power of two."""
    cdef int shift
    if ns >= <uint64_t>1 << MAX_BITS:
        return BUCKETS - 1
    if ns < SUB_COUNT:
        return <int>ns
    shift = log2_floor(ns) - SUB_BITS
    return ((shift + 1) << SUB_BITS) + <int>((ns >> shift) & (SUB_COUNT - 1))


cdef inline uint64_t middle_of(int bucket) noexcept nogil:
    cdef int shift = (bucket >> SUB_BITS) - 1
    if shift <= 0:
        return bucket
    return (<uint64_t>(SUB_COUNT + (bucket & (SUB_COUNT - 1))) << shift) + (<uint64_t>1 << (shift - 1))


cdef class Histogram:
    """Durations in nanoseconds."""

    cdef void add_ns(self, int64_t ns) noexcept nogil:
        cdef uint64_t value = <uint64_t>ns if ns > 0 else 0
        self.counts[bucket_of(value)] += 1
        if self.count == 0 or value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        self.count += 1
        self.total_ns += value

    def add(self, ns: int) -> None:
        """Add one duration in ns; a negative one counts as 0."""
        self.add_ns(ns)

    def merge(self, Histogram other not None) -> None:
        """Add all durations of `other`."""
        cdef int i
        if other.count == 0:
            return
        for i in range(BUCKETS):
            self.counts[i] += other.counts[i]
        self.least = other.least if self.count == 0 else min(self.least, other.least)
        self.most = max(self.most, other.most)
        self.count += other.count
        self.total_ns += other.total_ns

    def percentile(self, percent: float) -> int:
        """Return the duration that `percent` of the samples do not exceed, within 1/128; ValueError when empty."""
        cdef uint64_t seen = 0
        cdef uint64_t rank
        cdef int i
        if self.count == 0:
            raise ValueError("an empty histogram has no percentiles")
        if not 0 <= percent <= 100:
            raise ValueError(f"percentile {percent} is not between 0 and 100")
        rank = max(1, -int(-(self.count * percent) // 100))
        for i in range(BUCKETS):
            seen += self.counts[i]
            if seen >= rank:
                break
        return min(max(middle_of(i), self.least), self.most)

    @property
    def min(self) -> int:
        return self.least

    @property
    def max(self) -> int:
        return self.most

    @property
    def mean(self) -> float:
        return self.total_ns / self.count if self.count else 0.0
