"""The part of a consumer that its stream uses; see consumerbase.pxd."""


cdef class ConsumerBase:
    """A consumer, as its stream sees it; see gnats.jetstream.consumer.consumer.Consumer."""
