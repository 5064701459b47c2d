"""The verbs of the command line, one file each; only these and `__main__` print or set exit codes."""
