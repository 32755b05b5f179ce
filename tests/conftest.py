"""Settings of all tests."""

from hypothesis import settings

# An example's time depends on what else the machine does; what it finds does not.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")
