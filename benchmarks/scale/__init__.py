"""A database as it is after years: filled by SQL, and measured at several sizes."""
