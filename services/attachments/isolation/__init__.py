"""The process in which uploads are decoded, and what it gives up before it sees one.

Only this process loads Pillow: no module that the others import does.
"""
