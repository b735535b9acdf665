"""Creates large databases for measurements, filled by SQL with the data of several years."""
