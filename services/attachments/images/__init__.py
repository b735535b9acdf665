"""Converts uploaded images into the formats in which Pressroom stores images."""
