"""Models, one TOML file each."""
