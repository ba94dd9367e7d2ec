from __future__ import annotations

from hypothesis import settings

# A deadline measures how busy the machine is, not whether the code is right.
settings.register_profile("octavo", deadline=None)
settings.load_profile("octavo")
