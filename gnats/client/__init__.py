"""The control plane's side of a client: its session, and the grant that lets it in."""
