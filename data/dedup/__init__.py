"""Duplicates: exact ones, near ones found by signatures and verified, and the differences that forbid a merge."""
