"""Clusters of nats-server and gnats in both ways of running, mixed."""
