"""GPUDirect Storage: what this machine has of it, whether cuFile's driver opens, and which path bytes took."""
