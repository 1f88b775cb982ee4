"""Simulate VGG16, ResNet-50 and three layers of GPT-3 on two clusters of 256 chips; draw the results."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import bar_charts
import pandas as pd
from layer_costs import Costs
from layer_tables import PARALLELISMS, read_layers, text_workload

from chakrascope.converter import NodeType, Workload, read_text_workload
from chakrascope.runner import Result, simulate


@dataclass(frozen=True)
class Platform:
    """A cluster of 256 chips: presets of network and system, and the chip with the costs of operators.

    If there are two *queues* per dimension, collectives use both directions of a ring.
    """

    network: str
    system: str
    queues: int
    chip: str


PLATFORMS = {
    "dgx-2": Platform("dgx-2-16x16", "halving-doubling", 1, "v100"),
    "tpu-v2": Platform("tpu-v2-16x16", "default", 2, "tpu-v2"),
}
SAMPLES_PER_RANK = {"vgg16": 32, "resnet50": 32, "gpt3": 1}
TITLES = {"vgg16": "VGG16", "resnet50": "ResNet-50", "gpt3": "GPT-3, three layers"}
RANKS = 256
# Ranks that share a layer in hybrid parallelism: a DGX-2, or a row of the torus.
MODEL_GROUP = 16
# Communication times (microseconds) published in the study that is reproduced here.
PUBLISHED_US = {
    ("vgg16", "data", "dgx-2"): 48_600,
    ("vgg16", "model", "dgx-2"): 4_832_700,
    ("vgg16", "data", "tpu-v2"): 94_700,
    ("vgg16", "model", "tpu-v2"): 3_562_700,
    ("resnet50", "data", "dgx-2"): 53_700,
    ("resnet50", "model", "dgx-2"): 3_223_100,
    ("resnet50", "data", "tpu-v2"): 89_800,
    ("resnet50", "model", "tpu-v2"): 3_960_900,
    ("gpt3", "model", "dgx-2"): 206_000_000,
    ("gpt3", "model", "tpu-v2"): 250_000_000,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("platform-study"), help="folder to write")
    parser.add_argument("--model", choices=TITLES, action="append", help="only this model; may be repeated")
    parser.add_argument(
        "--samples", type=int, help="samples per rank and step [default: 32 images or 1 sequence]"
    )
    options = parser.parse_args()
    layers, summary = study(options.model or list(TITLES), options.samples, options.output)
    bar_charts.write_all(layers, summary, options.output, TITLES)
    print(summary.to_string(index=False))


def study(models: list[str], samples: int | None, output: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Simulate every model in every parallelism on every platform; write and return the two tables."""
    (output / "workloads").mkdir(parents=True, exist_ok=True)
    tables, rows = [], []
    for model in models:
        for parallelism in PARALLELISMS:
            for name, platform in PLATFORMS.items():
                per_rank = samples or SAMPLES_PER_RANK[model]
                workload = build(model, parallelism, name, per_rank, output / "workloads")
                result = simulate(
                    workload, platform.system, platform.network, num_queues_per_dim=platform.queues
                )
                layers = per_layer(result, workload)
                key = {"model": model, "parallelism": parallelism, "platform": name}
                tables.append(layers.assign(**key))
                rows.append({**key, **totals(result, layers, PUBLISHED_US.get((model, parallelism, name)))})
    layers, summary = pd.concat(tables, ignore_index=True), pd.DataFrame(rows)
    summary["published_us"] = summary["published_us"].astype("Int64")
    layers.to_csv(output / "layers.csv", index=False)
    summary.to_csv(output / "summary.csv", index=False)
    return layers, summary


def build(model: str, parallelism: str, platform: str, samples: int, folder: Path) -> Workload:
    """Write the text workload of one training step and read it for all ranks."""
    path = folder / f"{model}-{parallelism}-{platform}.txt"
    costs = Costs(PLATFORMS[platform].chip, PLATFORMS[platform].network)
    group = MODEL_GROUP if parallelism == "hybrid" else RANKS
    text = text_workload(read_layers(model), parallelism, group, samples, costs.passes)
    path.write_text(text, encoding="utf-8")
    return read_text_workload(path, RANKS, model_group=group)


def per_layer(result: Result, workload: Workload) -> pd.DataFrame:
    """Return computation, communication and waiting of rank 0 for each layer."""
    graph = workload.graphs[workload.program_of_rank[0]]
    times = result.nodes.loc[result.nodes["rank"] == 0, ["node_id", "start_ns", "end_ns"]]
    nodes = graph.nodes.merge(times, on="node_id")
    ends = nodes.set_index("node_id")["end_ns"]
    ready = graph.edges.assign(end=graph.edges["src"].map(ends)).groupby("dst")["end"].max()
    nodes["ready_ns"] = nodes["node_id"].map(ready).fillna(0).astype("int64")
    communicates = nodes["type"] == NodeType.COMM_COLL
    busy = nodes["end_ns"] - nodes["start_ns"]
    nodes["compute_ns"] = busy.where(~communicates, 0)
    nodes["communication_ns"] = busy.where(communicates, 0)
    nodes["queued_ns"] = (nodes["start_ns"] - nodes["ready_ns"]).where(communicates, 0)
    columns = ["compute_ns", "communication_ns", "queued_ns"]
    sums = nodes.groupby("module", sort=False)[columns].sum()
    table: pd.DataFrame = sums.rename_axis("layer").reset_index()
    return table


def totals(result: Result, layers: pd.DataFrame, published_us: int | None) -> dict[str, int | None]:
    """Return the total times of a step in microseconds."""
    sums = layers[["compute_ns", "communication_ns", "queued_ns"]].sum()
    return {
        "step_us": round(result.makespan_ns / 1000),
        "compute_us": round(sums["compute_ns"] / 1000),
        "communication_us": round(sums["communication_ns"] / 1000),
        "queued_us": round(sums["queued_ns"] / 1000),
        "exposed_us": round((result.makespan_ns - sums["compute_ns"]) / 1000),
        "published_us": published_us,
    }


if __name__ == "__main__":
    main()
