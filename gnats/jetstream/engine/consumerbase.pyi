class ConsumerBase:
    """A consumer as its stream sees it; see gnats.jetstream.consumer.consumer.Consumer."""
