"""JWTs of operators, accounts, users, activations and authorizations: read, checked and written."""
