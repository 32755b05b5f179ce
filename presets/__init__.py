"""Facts as data: models, accelerators, prices; installed as `planner.presets`."""
