"""What streams and consumers can be configured to do, and what they may use."""
