"""Decodes uploaded images in a child process.

The child process drops its privileges before it receives the first image. Only the child process
may load Pillow. Python modules that the API or a worker's main process imports must not load
Pillow.
"""
