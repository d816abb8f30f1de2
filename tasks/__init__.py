"""One file a stage: the only place that knows params.yaml and artifact paths."""
