"""One file a stage: the only place that knows params.yaml and artifact paths."""

import os
import warnings

# torch warns about a package that dvclive brings along; nobody who reads a stage's log, or that of the processes it
# starts, can act on it.
PYNVML = "The pynvml package is deprecated"
warnings.filterwarnings("ignore", message=PYNVML, category=FutureWarning)
os.environ.setdefault("PYTHONWARNINGS", f"ignore:{PYNVML}:FutureWarning")
