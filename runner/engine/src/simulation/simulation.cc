#include "simulation.h"

#include <algorithm>
#include <deque>

#include "../errors.h"
#include "cluster.h"
#include "stalls.h"

namespace chakrascope {
namespace {

void check_network(const Config& config) {
    const std::size_t dimensions = config.topology.size();
    if (dimensions == 0 || config.npus_count.size() != dimensions || config.bandwidth.size() != dimensions ||
        config.latency.size() != dimensions) {
        throw ConfigError(
            "The network needs one topology, npus_count, bandwidth and latency per dimension; make the four "
            "lists "
            "equally long.");
    }
    for (std::size_t d = 0; d < dimensions; ++d) {
        const std::string where = " of network dimension " + std::to_string(d);
        const std::string& name = config.topology[d];
        if (name != "Ring" && name != "FullyConnected" && name != "Switch") {
            throw ConfigError("The topology '" + name + "'" + where +
                              " is unknown; known are Ring, FullyConnected and Switch.");
        }
        if (config.npus_count[d] < 2) throw ConfigError("The npus_count" + where + " must be at least 2.");
        if (!(config.bandwidth[d] > 0)) throw ConfigError("The bandwidth" + where + " must be above 0.");
        if (!(config.latency[d] >= 0)) throw ConfigError("The latency" + where + " must not be negative.");
    }
}

void check_system(const Config& config) {
    const auto positive = [](int value, const char* name) {
        if (value < 1) throw ConfigError(std::string("'") + name + "' must be at least 1.");
    };
    positive(config.preferred_dataset_splits, "preferred-dataset-splits");
    positive(config.active_chunks_per_dimension, "active-chunks-per-dimension");
    positive(config.num_queues_per_dim, "num-queues-per-dim");
    if (config.endpoint_delay < 0) throw ConfigError("'endpoint-delay' must not be negative.");
    if (config.semantics != "astra-sim" && config.semantics != "trace") {
        throw ConfigError("The semantics '" + config.semantics +
                          "' are unknown; known are astra-sim and trace.");
    }
}

void check_ranks(const Config& config, std::size_t programs,
                 const std::vector<std::int32_t>& program_of_rank) {
    if (static_cast<std::int64_t>(program_of_rank.size()) != config.num_ranks()) {
        throw ConfigError("The workload has " + std::to_string(program_of_rank.size()) +
                          " ranks, but the network has " + std::to_string(config.num_ranks()) +
                          " NPUs (the product of npus_count); choose a network of the same size.");
    }
    for (const std::int32_t program : program_of_rank) {
        if (program < 0 || static_cast<std::size_t>(program) >= programs) {
            throw ConfigError("A rank names a program that does not exist.");
        }
    }
}

// A chain that began at the very time the node itself started is the node's own.
Origin settle(const Rank& rank, std::uint32_t node, const std::deque<Rank>& ranks) {
    const NodeRecord& record = rank.records()[node];
    const Origin itself{rank.id(), static_cast<std::int32_t>(node)};
    if (record.origin.rank < 0) return itself;
    const NodeRecord& other =
        ranks[static_cast<std::size_t>(record.origin.rank)].records()[record.origin.node];
    return other.start <= record.start ? itself : record.origin;
}

void collect_nodes(Output& output, const std::deque<Rank>& ranks) {
    for (const Rank& rank : ranks) {
        const auto id_of = [&](std::int32_t node) {
            return node < 0 ? -1 : static_cast<std::int64_t>(rank.program().nodes[node].id);
        };
        for (std::uint32_t i = 0; i < rank.records().size(); ++i) {
            const NodeRecord& record = rank.records()[i];
            if (record.end < 0) continue;
            const Origin origin = settle(rank, i, ranks);
            output.node_rank.push_back(rank.id());
            output.node_id.push_back(id_of(static_cast<std::int32_t>(i)));
            output.node_start_ns.push_back(record.start);
            output.node_end_ns.push_back(record.end);
            output.node_cause.push_back(id_of(record.cause));
            output.node_cause_is_dependency.push_back(
                record.cause >= 0 && rank.program().depends(i, static_cast<std::uint32_t>(record.cause)));
            const Rank& owner = ranks[static_cast<std::size_t>(origin.rank)];
            output.node_origin_rank.push_back(origin.rank);
            output.node_origin_node.push_back(
                static_cast<std::int64_t>(owner.program().nodes[origin.node].id));
        }
    }
}

Output collect(Cluster& cluster, const std::deque<Rank>& ranks) {
    Output output;
    for (const Rank& rank : ranks) {
        output.rank_finish_ns.push_back(rank.finish_time());
        output.rank_statistics.push_back(statistics_of(rank, cluster.config));
        output.makespan_ns = std::max(output.makespan_ns, rank.finish_time());
        output.nodes_total += rank.records().size();
        output.nodes_executed += rank.executed();
    }
    output.finish_order = cluster.finish_order;
    output.events = cluster.events.events();
    if (cluster.config.record_nodes) collect_nodes(output, ranks);
    if (cluster.config.record_links) output.links = cluster.mailbox.network().links();
    output.unfinished = find_stalls(cluster, ranks);
    return output;
}

}  // namespace

Output simulate(const Config& config, const std::vector<std::shared_ptr<const Program>>& programs,
                const std::vector<std::int32_t>& program_of_rank, const Progress& progress) {
    check_network(config);
    check_system(config);
    check_ranks(config, programs.size(), program_of_rank);
    Cluster cluster(config);
    std::deque<Rank> ranks;
    for (std::size_t rank = 0; rank < program_of_rank.size(); ++rank) {
        const auto& program = programs[static_cast<std::size_t>(program_of_rank[rank])];
        ranks.emplace_back(cluster, static_cast<std::int32_t>(rank), *program);
    }
    for (Rank& rank : ranks) rank.fire();
    const auto poll = [&] {
        return !progress || progress(static_cast<std::int64_t>(cluster.events.now()), cluster.ranks_finished);
    };
    if (!poll() || !cluster.events.run(poll)) throw Cancelled("The simulation was cancelled.");
    return collect(cluster, ranks);
}

}  // namespace chakrascope
