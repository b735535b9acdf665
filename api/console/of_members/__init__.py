"""What the console's pages of members, segments and bulk acts have in common."""
