"""What Prefect runs, and the `daymill` command."""
