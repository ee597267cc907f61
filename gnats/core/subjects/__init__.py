"""Subjects, subscriptions, and the tries that match them."""
