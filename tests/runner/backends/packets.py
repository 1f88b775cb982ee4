"""Recorded packet-level cases as networks, workloads and messages."""

import gzip
import json

from workloads import comp, recv, send, workload

from chakrascope.converter import CollectiveType, NodeType
from chakrascope.runner import NetworkConfig, SystemConfig
from chakrascope.runner.config import PacketPart

# ASTRA-sim's sample configuration, which the cases were recorded with.
SAMPLE = {
    "ALPHA_RESUME_INTERVAL": 1,
    "BUFFER_SIZE": 32,
    "EWMA_GAIN": 0.00390625,
    "FAST_RECOVERY_TIMES": 1,
    "GLOBAL_T": 0,
    "KMAX_MAP": {rate * 10**9: kb for rate, kb in ((100, 1600), (200, 2400), (400, 3200))},
    "KMIN_MAP": {rate * 10**9: kb for rate, kb in ((100, 400), (200, 600), (400, 800))},
    "L2_ACK_INTERVAL": 1,
    "L2_CHUNK_SIZE": 4000,
    "MI_THRESH": 0,
    "MULTI_RATE": 0,
    "PMAX_MAP": {rate * 10**9: 0.2 for rate in (100, 200, 400)},
    "RP_TIMER": 900,
    "VAR_WIN": 1,
}
_TYPES = {
    "COMP": NodeType.COMP,
    "COLL": NodeType.COMM_COLL,
    "SEND": NodeType.COMM_SEND,
    "RECV": NodeType.COMM_RECV,
}
_NAMES = {
    "comm_size": "comm_size_bytes",
    "comm_src": "comm_src",
    "comm_dst": "comm_dst",
    "comm_tag": "comm_tag",
}


HEADER, PAYLOAD = 36, 1000  # bytes of a packet
PS_PER_BYTE = 20  # 400 Gb/s


def wire_ps(size):
    """Return the duration of a message's packets on one link."""
    packets = -(-size // PAYLOAD)
    return (size + packets * HEADER) * PS_PER_BYTE


def rounded(time_ps):
    return -(-time_ps // 1000)


def arrivals(driver, sent):
    """Send all messages at once, and return the arrival times."""
    arrived = dict(driver.advance(sent, -1))
    while len(arrived) < len(sent):
        more = driver.advance([], -1)
        assert more
        arrived |= dict(more)
    return arrived


def read_cases(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def star(hosts, **packet):
    """Return hosts around one switch: 400 Gb/s, 500 ns a link, no congestion control."""
    links = [[host, hosts, "400Gbps", "500ns", 0] for host in range(hosts)]
    return network(hosts, nodes=hosts + 1, switches=[hosts], links=links, **{"CC_MODE": 12, **packet})


def network(hosts, **packet):
    part = PacketPart.from_mapping(SAMPLE | packet)
    return NetworkConfig(
        ("Switch",),
        (hosts,),
        (400e9 / 8 / (1 << 30),),
        (500.0,),
        packet=part,
    )


def case_network(case, **packet):
    topology = case["topology"]
    hosts, nodes = topology["hosts"], topology["hosts"] + topology["switches"]
    links = [[a, b, f"{rate}Gbps", f"{delay}ns", 0] for a, b, rate, delay in topology["links"]]
    return network(
        hosts,
        nodes=nodes,
        switches=list(range(hosts, nodes)),
        links=links,
        CC_MODE=case["cc_mode"],
        ASTRA_SIM_CLOCK=1,
        **case.get("settings", {}),
        **packet,
    )


def case_workload(case):
    return workload(*[[_node(node) for node in nodes] for nodes in case["workload"]])


def case_system(case):
    return SystemConfig.from_mapping(case["system"], case["id"])


def _node(node):
    facts = {
        "node_id": node["id"],
        "name": node["name"],
        "type": _TYPES[node["type"]],
        "duration_ns": node.get("duration_micros", 0) * 1000,
        "after": [*node.get("data_deps", []), *node.get("ctrl_deps", [])],
    }
    if "comm_type" in node:
        facts["comm_type"] = CollectiveType[node["comm_type"]]
    return facts | {column: node[name] for name, column in _NAMES.items() if name in node}


def messages(case):
    """Return the recorded messages in the order of sending, with their durations."""
    order = sorted(range(len(case["fct"])), key=lambda index: case["fct"][index][3])
    sent = [(index, *case["fct"][index][:4]) for index in order]
    return sent, {index: flow[4] for index, flow in enumerate(case["fct"])}


def sends(ranks, messages):
    """Return the workload in which each of the messages (source, destination, bytes) leaves at time 0."""
    nodes = [[] for _ in range(ranks)]
    for tag, (source, destination, size) in enumerate(messages):
        for rank, end in ((source, send), (destination, recv)):
            nodes[rank].append(end(len(nodes[rank]), source, destination, size, comm_tag=tag))
    return workload(*[rank or [comp(0, 0)] for rank in nodes])
