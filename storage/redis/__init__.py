"""What is kept in Redis: nothing that must survive it."""
