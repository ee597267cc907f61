"""The way of a message to its subscribers, through imports and services too."""
