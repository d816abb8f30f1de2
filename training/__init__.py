"""Library: the model, its optimization, checkpoints and metrics."""
