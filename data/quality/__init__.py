"""Level 2: what a text measures, which rules and which learned model judge it, and whose labels look wrong."""
