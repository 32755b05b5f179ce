"""Accelerators, one TOML file each."""
