"""The current SQL of each database function, with the triggers that call the function.

A migration that changes a function contains a copy of its new SQL. A test compares the functions of
a migrated database with the SQL files.
"""
