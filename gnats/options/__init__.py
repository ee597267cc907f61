"""The options of a server: defaults, rules, what may change while it runs."""
