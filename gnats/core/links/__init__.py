"""Links to other servers: what all share, and the session of a route."""
