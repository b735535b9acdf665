"""Data in Redis, all of which the installation can afford to lose."""
