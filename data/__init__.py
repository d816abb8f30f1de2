"""Library: records in, training-ready data out."""
