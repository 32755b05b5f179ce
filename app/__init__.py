"""The web app; installed as `planner.app`."""
