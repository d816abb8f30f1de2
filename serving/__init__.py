"""Library: bundles, the server, releases and their gate."""
