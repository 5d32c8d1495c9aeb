"""Machines by id: the catalog's, and the one at hand."""

import pytest

from labkit.errors import BadInput
from labkit.evidence import Tier, measured
from labkit.measure import machine


def test_this_machine_is_asked_of_the_probe(monkeypatch):
    monkeypatch.setattr(machine, "bandwidth", lambda id: measured(12.5, "GB/s", "probe of a test"))
    here = machine.find("this")
    assert here.bandwidth.tier is Tier.MEASURED and here.bandwidth.value == 12.5 and here.source == "probe of a test"


def test_others_are_the_catalogs():
    assert machine.find("dgx-spark").name == "NVIDIA DGX Spark (GB10)"
    with pytest.raises(BadInput, match="this"):
        machine.find("nonesuch")
