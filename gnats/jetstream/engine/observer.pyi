class Observer:
    """A consumer as its stream sees it; see gnats.jetstream.consumer.consumer.Consumer."""
