"""Repeat one case of a campaign, as its failure asks for: python -m tests.faults test_numbers.check_numbers 1234."""

import importlib
import sys

import tests.conftest  # noqa: F401  the environment of the tests, before torch is imported

if __name__ == "__main__":
    from tests.faults import campaign

    module, _, name = sys.argv[1].partition(".")
    campaign.run(getattr(importlib.import_module(f"tests.faults.{module}"), name), [int(sys.argv[2])])
    print("passed")
