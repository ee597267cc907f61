"""Permissions of users, and the replies that they allow."""
