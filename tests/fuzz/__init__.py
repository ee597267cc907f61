"""Random sequences of well-formed requests, to find what ends, stalls or confuses a server.

`hunt` plays them from several connections to a gnats, best one built with a sanitizer; `compare` plays them
from one connection to nats-server and to gnats. `make fuzz ARGS=--help` tells the options.
"""
