"""Uploaded images, converted to one form.

Only the converter process loads Pillow: no module that the others import does.
"""
