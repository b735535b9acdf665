"""The current SQL of each database function, with the triggers that call the function.

Migrations contain copies of the current SQL. A test compares the functions of a migrated database
with the files in this folder.
"""
