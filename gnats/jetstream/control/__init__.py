"""The control plane's half of JetStream: streams, consumers, and the accounts that own them."""
