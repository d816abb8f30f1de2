"""Bias (level 4): weights or features for training that treat groups alike, judged on held-out records."""
