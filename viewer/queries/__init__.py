"""Turn a run into what a page shows; every function here is pure and has a command-line twin."""
