"""What commands print: cases, certificates, the catalogue, progress while somebody waits."""
