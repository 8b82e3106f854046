"""The intake page's service: codes that prove a person's identity, and the cases they open."""
