"""Hypothesis without its own clock: a busy machine is no defect of the code, and pytest-timeout bounds what hangs."""

from hypothesis import settings

settings.register_profile("nodemend", deadline=None)
settings.load_profile("nodemend")
