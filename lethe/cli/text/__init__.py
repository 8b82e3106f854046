"""Output of commands: cases, certificates, the catalogue, progress."""
