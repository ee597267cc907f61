"""Random sequences of well-formed requests, to find those that crash, stall or confuse a server.

`hunt` plays them from several connections to a gnats server, best one built with a sanitizer; `compare` plays
them from one connection to nats-server and to gnats. `make fuzz ARGS=--help` shows the options.
"""
