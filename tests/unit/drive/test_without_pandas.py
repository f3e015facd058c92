"""The driver's Arrow batches are made without pandas, which a scenario may still import."""

import subprocess
import sys

SCRIPT = """
import sys
import pyarrow as pa
{first}
pa.record_batch({{"x": [1.0, None]}})
print("pandas" in sys.modules)
import pandas
print(pandas.Series([1, 2]).sum())
"""


def said(first: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_arrow_makes_batches_without_pandas_and_a_scenario_may_still_import_it():
    assert said("") == ["True", "3"]  # what is avoided: should this change, the module can go
    assert said("from loadtest.drive.without_pandas import keep_pandas_out; keep_pandas_out()") == ["False", "3"]
