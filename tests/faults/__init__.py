"""What is left after servers were killed and files were damaged."""
