"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# CEQL_FUZZ multiplies the number of random cases. Deadlines are off: machines are shared, and no
# test may depend on the clock.
settings.register_profile(
    "ceql",
    max_examples=300 * int(os.environ.get("CEQL_FUZZ", "1")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("ceql")
