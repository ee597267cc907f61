"""The client protocol, byte for byte: what the reference server answers, gnats answers."""
