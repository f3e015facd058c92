"""Settings of all tests; and by lying here it puts this folder on the path, for `compose_files`.

Examples are the same at every run, so that a failure speaks of the change at hand; nightly, with
`--hypothesis-profile search`, new ones are looked for.
"""

from hypothesis import settings

# How long an example takes says nothing on a busy machine.
settings.register_profile("shared machine", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("shared machine")
