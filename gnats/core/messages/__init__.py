"""Messages on their way: values, headers, encoding, expected responses, notes for traces."""
