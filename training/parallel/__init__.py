"""Training over several processes: who computes what, and what they tell each other."""
