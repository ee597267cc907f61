"""The checks of a message before it is stored, and the answers to its publisher."""
