"""Settings of all tests; and by lying here it puts this folder on the path, for `compose_files`."""

from hypothesis import settings

settings.register_profile("shared machine", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("shared machine")
