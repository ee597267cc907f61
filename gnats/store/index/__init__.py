"""What finds messages: sequences, subjects, times."""
