"""Values in, text out."""
