"""The options of a server: values, defaults, checks, configuration keys, changes in a reload."""
