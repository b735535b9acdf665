"""Each table is in the registry of retention, and the operator's page says the same."""
