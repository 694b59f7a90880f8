"""`regard explore`: a page on this machine, made of view/ and the models."""
