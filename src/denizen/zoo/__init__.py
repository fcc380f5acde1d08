"""Ready models; each is a folder to copy."""
