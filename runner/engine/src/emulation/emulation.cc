#include "emulation.h"

#include "../errors.h"
#include "../simulation/cluster.h"
#include "../simulation/simulation.h"
#include "../simulation/stalls.h"
#include "../workload/rank.h"
#include "clock.h"

namespace chakrascope::engine {
namespace {

void collect_nodes(EmulationOutput& output, const Rank& rank) {
    const Program& program = rank.program();
    for (std::uint32_t i = 0; i < rank.records().size(); ++i) {
        const NodeRecord record = rank.records()[i];
        const Node node = program.node(i);
        if (record.start >= 0 && record.end < 0)
            output.open.push_back({static_cast<std::int64_t>(node.id), node.name, operation_of(node)});
        if (record.end < 0) continue;
        const bool own = record.origin.rank < 0;
        output.node_index.push_back(static_cast<std::int32_t>(i));
        output.node_id.push_back(static_cast<std::int64_t>(node.id));
        output.node_start_ns.push_back(record.start);
        output.node_end_ns.push_back(record.end);
        output.node_cause.push_back(record.cause < 0 ? -1
                                                     : static_cast<std::int64_t>(program.id(
                                                           static_cast<std::uint32_t>(record.cause))));
        output.node_cause_is_dependency.push_back(
            record.cause >= 0 && program.depends(i, static_cast<std::uint32_t>(record.cause)));
        output.node_origin_rank.push_back(own ? rank.id() : record.origin.rank);
        output.node_origin_index.push_back(own ? static_cast<std::int32_t>(i) : record.origin.node);
    }
}

}  // namespace

EmulationOutput emulate(const Config& config, const std::vector<std::shared_ptr<const Program>>& programs,
                        const std::vector<std::int32_t>& program_of_rank, std::int32_t rank,
                        emulation::Transport& transport, emulation::Time start,
                        const emulation::Reporter::Tell& progress) {
    check_config(config);
    if (static_cast<std::int64_t>(program_of_rank.size()) != config.num_ranks() || rank < 0 ||
        rank >= config.num_ranks()) {
        throw ConfigError("The workload has " + std::to_string(program_of_rank.size()) +
                          " ranks, but the network has " + std::to_string(config.num_ranks()) +
                          "; choose a network of the same size.");
    }
    const UnevenCollectives uneven(config, programs, program_of_rank);
    EmulationOutput output;
    Config own = config;
    own.network_between = [&](EventQueue& events, Mailbox& mailbox) -> std::unique_ptr<Network> {
        return std::make_unique<EmulatedNetwork>(events, mailbox, transport, rank, start, output.traffic);
    };
    Cluster cluster(own, nullptr, uneven);
    Rank itself(cluster, rank, *programs.at(static_cast<std::size_t>(program_of_rank[rank])));
    emulation::Reporter reporter(progress);
    const auto poll = [&] {
        const Traffic& traffic = output.traffic;
        return reporter.note({static_cast<std::int64_t>(cluster.events.reached()), itself.finished(),
                              traffic.waiting, traffic.sent.size(), traffic.received.size()});
    };
    emulation::Sleeper sleeper;
    for (emulation::Time now = 0; (now = emulation::monotonic_ns()) < start;) {
        const bool close = start < now + emulation::kPatience;
        if (!close && !poll()) break;
        const emulation::Until half{now + emulation::kPatience / 2, false};
        sleeper.doze(-1, close ? emulation::Until{start} : half);
    }
    itself.fire();
    cluster.events.run(poll);
    reporter.finish();
    output.finish_ns = itself.finish_time();
    output.statistics = statistics_of(itself, own);
    output.nodes_total = itself.records().size();
    output.nodes_executed = itself.executed();
    output.events = cluster.events.events();
    output.overtaken = cluster.overtaken;
    output.replayed = cluster.replayed;
    output.evened = evened_collectives(config, programs);
    collect_nodes(output, itself);
    return output;
}

}  // namespace chakrascope::engine
