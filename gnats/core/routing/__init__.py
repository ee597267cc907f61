"""Routes messages to their subscribers, also through imports and services; traces them."""
