"""Domain adaptation: from a few examples of a target domain to weights, or a choice, of the pool's records."""
