"""Messages on their way, and what they are made of."""
