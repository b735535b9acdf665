"""Decodes uploaded images in a child process.

The child process gives up its privileges before it gets the first image. Only the child process
that decodes images loads Pillow. A module that is also imported by other processes must not load
Pillow.
"""
