"""The current text of each function of the database, with the triggers that call it.

Migrations have their own copies. A test compares what they made with these files.
"""
