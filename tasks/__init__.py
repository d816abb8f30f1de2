"""One file a stage: the only place that knows params.yaml and artifact paths."""

import warnings

# torch warns about a package that dvclive brings along; nobody who reads a stage's log can act on it.
warnings.filterwarnings("ignore", message="The pynvml package is deprecated", category=FutureWarning)
