"""Decodes uploaded images in a child process.

The child process that decodes images gives up its privileges before it gets the first image. Only
the child process that decodes images loads Pillow. Python modules that the API or a worker's main
process imports must not load Pillow.
"""
