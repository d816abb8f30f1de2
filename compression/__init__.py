"""Library: prune, distill, quantize, export, prove parity, benchmark."""
