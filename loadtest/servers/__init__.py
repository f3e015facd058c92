"""The other end: what kind of server it is, and what it says of itself."""
