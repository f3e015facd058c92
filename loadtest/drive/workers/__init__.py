"""Load from several processes or machines: a master that judges, and workers that drive a share of the users each."""
