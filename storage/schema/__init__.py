"""The current SQL of each database function, with the triggers that call the function.

Migrations contain copies of this SQL. A test compares a migrated database with these files.
"""
