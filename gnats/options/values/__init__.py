"""The types of options' values, and checks of their parts."""
