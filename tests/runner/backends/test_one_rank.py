"""A network of one rank: simulated by our backends, never handed to ASTRA-sim, which wants two."""

from __future__ import annotations

import pytest
from workloads import coll, comp, workload

from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, prepare, simulate
from chakrascope.runner.backends import write_inputs

COMPUTE_NS = 5000
REFUSED = "'alone' has one rank, and ASTRA-sim simulates two or more"


def alone(topology="Switch"):
    return NetworkConfig((topology,), (1,), (1.0,), (500.0,), name="alone")


def job():
    return workload([comp(0, COMPUTE_NS), coll(1, 4096, (0,))])


@pytest.mark.parametrize("topology", ["FullyConnected", "Ring", "Switch"])
@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "packet"])
def test_a_rank_on_its_own_talks_to_nobody(backend, topology):
    result = simulate(job(), "default", alone(topology), backend=backend)
    assert result.ranks["finish_ns"].tolist() == [COMPUTE_NS]
    assert result.links["bytes"].sum() == 0
    assert (result.links["src"] != result.links["dst"]).all()


def test_a_network_of_one_rank_survives_its_file(tmp_path):
    alone().save(tmp_path / "alone.yml")
    assert NetworkConfig.load(tmp_path / "alone.yml").npus_count == (1,)


@pytest.mark.parametrize("kind", ["analytical-unaware", "analytical-aware", "ns3"])
def test_astra_sim_is_not_asked(kind, tmp_path):
    experiment = prepare(job(), "default", alone(), backend=f"astra-sim:{kind}")
    with pytest.raises(ConfigError, match=REFUSED):
        write_inputs(experiment, kind, tmp_path, trace=False)


def test_a_service_is_not_asked():
    pytest.importorskip("grpc", reason="grpcio is not installed (the extra 'service')")
    with pytest.raises(ConfigError, match=REFUSED):
        simulate(job(), "default", alone(), backend="service://127.0.0.1:1")
