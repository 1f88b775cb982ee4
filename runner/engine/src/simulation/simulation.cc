#include "simulation.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "../errors.h"
#include "../fields.h"
#include "../network/network.h"
#include "../network/topology.h"
#include "../system/gpus.h"
#include "cluster.h"
#include "stalls.h"

namespace chakrascope::engine {
namespace {

// Return whether a stalled simulation is repeated with more overtaking. A captured job did not stall, so its
// simulation must not stall. A simulation with an external network cannot be restarted.
bool may_ease(const Config& config) {
    return config.semantics == Semantics::Trace && !config.external_network &&
           config.overtaking < kMostOvertaking;
}

// Return whether phases of collectives are computed as a whole, which is faster only for many ranks.
bool may_meet(const Config& config) {
    return config.meeting_ranks > 0 && config.num_ranks() >= config.meeting_ranks &&
           Meetings::are_exact(config);
}

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
        if (std::find(kTopologies.begin(), kTopologies.end(), name) == kTopologies.end()) {
            std::string known = kTopologies.front();
            for (std::size_t i = 1; i < kTopologies.size(); ++i)
                known += (i + 1 == kTopologies.size() ? " and " : ", ") + std::string(kTopologies[i]);
            throw ConfigError("The topology '" + name + "'" + where + " is unknown; known are " + known +
                              ".");
        }
        // A single rank is one dimension of size 1, without links.
        if (config.npus_count[d] < (dimensions == 1 ? 1 : 2))
            throw ConfigError("The npus_count" + where + " must be at least 2.");
        if (!(config.bandwidth[d] > 0)) throw ConfigError("The bandwidth" + where + " must be above 0.");
        if (!(config.latency[d] >= 0)) throw ConfigError("The latency" + where + " must not be negative.");
    }
}

void check_fabric(const Fabric& fabric) {
    for (const FabricLink& link : fabric.links) {
        const std::string name =
            "The link between " + std::to_string(link.a) + " and " + std::to_string(link.b);
        if (std::min(link.a, link.b) < 0 || std::max(link.a, link.b) >= fabric.nodes || link.a == link.b)
            throw ConfigError(name + " must join two different nodes of the fabric, numbered from 0.");
        if (link.rate_bps == 0 || link.delay_ps < 0)
            throw ConfigError(name + " needs a rate above 0 and a delay that is not negative.");
    }
}

void check_fields(const Config& config) {
#define ENGINE_FIELD(origin, type, member, value, values) check_value(#member, config.member, values);
#include "../config.def"
#undef ENGINE_FIELD
}

void check_ranks(const Config& config, std::size_t programs,
                 const std::vector<std::int32_t>& program_of_rank) {
    if (static_cast<std::int64_t>(program_of_rank.size()) != config.num_ranks()) {
        throw ConfigError("The workload has " + std::to_string(program_of_rank.size()) +
                          " ranks, but the network has " + std::to_string(config.num_ranks()) +
                          " NPUs (the product of npus_count); choose a network of the same size.");
    }
    if (!config.begin_ns.empty() && config.begin_ns.size() != program_of_rank.size())
        throw ConfigError("Some ranks have no time at which they begin.");
    for (const std::int32_t program : program_of_rank) {
        if (program < 0 || static_cast<std::size_t>(program) >= programs) {
            throw ConfigError("A rank names a program that does not exist.");
        }
    }
}

// Finds the simulated ranks, and the representative of each rank.
class Simulated {
  public:
    Simulated(Cluster& cluster, const Fold::Programs& programs,
              const std::vector<std::int32_t>& program_of_rank)
        : fold_(cluster.fold),
          programs_(programs),
          program_of_rank_(program_of_rank),
          by_id_(program_of_rank.size(), nullptr) {
        const auto add = [&](std::int32_t rank) {
            ranks_.emplace_back(cluster, rank, *programs[static_cast<std::size_t>(program_of_rank[rank])]);
            by_id_[rank] = &ranks_.back();
        };
        if (fold_ != nullptr) {
            for (const std::int32_t rank : fold_->representatives()) add(rank);
        } else {
            for (std::size_t rank = 0; rank < program_of_rank.size(); ++rank)
                add(static_cast<std::int32_t>(rank));
        }
    }

    std::deque<Rank>& ranks() { return ranks_; }
    const std::deque<Rank>& ranks() const { return ranks_; }
    std::int32_t count() const { return static_cast<std::int32_t>(by_id_.size()); }
    std::int32_t representative(std::int32_t rank) const {
        return fold_ != nullptr ? fold_->representative(rank) : rank;
    }
    // Return the simulated rank that represents the given rank.
    const Rank& of(std::int32_t rank) const { return *by_id_[representative(rank)]; }

    const std::shared_ptr<const Program>& program(std::int32_t rank) const {
        return programs_[static_cast<std::size_t>(program_of_rank_[rank])];
    }

  private:
    const Fold* fold_;
    const Fold::Programs& programs_;
    const std::vector<std::int32_t>& program_of_rank_;
    std::deque<Rank> ranks_;
    std::vector<const Rank*> by_id_;
};

// Return the order in which all ranks finish. Identical ranks are in ascending order.
std::vector<std::int32_t> expand_order(const std::vector<std::int32_t>& order, const Simulated& simulated) {
    std::vector<std::vector<std::int32_t>> alike(static_cast<std::size_t>(simulated.count()));
    for (std::int32_t rank = 0; rank < simulated.count(); ++rank)
        alike[simulated.representative(rank)].push_back(rank);
    std::vector<std::int32_t> expanded;
    for (const std::int32_t rank : order)
        expanded.insert(expanded.end(), alike[rank].begin(), alike[rank].end());
    return expanded;
}

// Return the order in which simulated ranks finish. If phases are computed as a whole, ranks that finish at
// the same time are in ascending order.
std::vector<std::int32_t> finish_order(const Cluster& cluster, const Simulated& simulated) {
    std::vector<std::int32_t> order = cluster.finish_order;
    if (!cluster.meetings.active()) return order;
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        const auto of = [&](std::int32_t rank) { return std::pair(simulated.of(rank).finish_time(), rank); };
        return of(a) < of(b);
    });
    return order;
}

void take_nodes(Output& output, Simulated& simulated) {
    for (Rank& rank : simulated.ranks()) {
        output.nodes.push_back(
            {rank.id(), simulated.program(rank.id()), rank.take_records(), rank.executed()});
    }
    for (std::int32_t rank = 0; output.folded && rank < simulated.count(); ++rank)
        output.rank_program.push_back(simulated.program(rank));
}

Output collect(Cluster& cluster, Simulated& simulated) {
    Output output;
    std::vector<Statistics> statistics(static_cast<std::size_t>(simulated.count()));
    for (const Rank& rank : simulated.ranks()) {
        statistics[rank.id()] = statistics_of(rank, cluster.config);
        output.makespan_ns = std::max(output.makespan_ns, rank.finish_time());
    }
    for (std::int32_t id = 0; id < simulated.count(); ++id) {
        const Rank& rank = simulated.of(id);
        output.rank_finish_ns.push_back(rank.finish_time());
        output.rank_statistics.push_back(statistics[rank.id()]);
        output.rank_representative.push_back(rank.id());
        output.nodes_total += rank.records().size();
        output.nodes_executed += rank.executed();
    }
    output.finish_order = expand_order(finish_order(cluster, simulated), simulated);
    output.events = cluster.events.events();
    output.folded = cluster.fold != nullptr;
    output.overtaking = cluster.config.overtaking;
    output.overtaken = cluster.overtaken;
    output.replayed = cluster.replayed;
    if (cluster.config.record_links) output.links = cluster.mailbox.network().links();
    if (const FabricReport* report = cluster.mailbox.network().report()) output.fabric = *report;
    if (const Undercharged* worst = cluster.mailbox.network().undercharged()) output.undercharged = *worst;
    if (const Gpus* gpus = cluster.mailbox.network().gpus()) {
        output.gpu_use = gpus->use();
        output.events += gpus->events();
    }
    output.unfinished = find_stalls(cluster, simulated.ranks());
    if (!output.unfinished.empty() && !may_ease(cluster.config))
        output.deadlock = find_deadlock(cluster, simulated.ranks());
    if (cluster.config.record_nodes) take_nodes(output, simulated);
    return output;
}

// One attempt to simulate. There is no output if the fold or the meetings were not exact, if GPUs did not
// stay in step, or if the simulation stalled.
struct Attempt {
    std::optional<Output> output;
    bool stalled = false;
};

// Simulate every rank, or a fold's representatives. With `meet`, phases of collectives are computed as a
// whole.
Attempt run(const Config& config, const Fold* fold, const UnevenCollectives& uneven,
            const Fold::Programs& programs, const std::vector<std::int32_t>& program_of_rank,
            const Progress& progress, bool meet = false) {
    Cluster cluster(config, fold, uneven, meet);
    Simulated simulated(cluster, programs, program_of_rank);
    for (Rank& rank : simulated.ranks()) {
        const auto place = static_cast<std::size_t>(rank.id());
        const std::int64_t begin = config.begin_ns.empty() ? 0 : config.begin_ns[place];
        if (begin <= 0)
            rank.fire();
        else
            cluster.events.after(rank.id(), static_cast<Time>(begin), bind<&Rank::fire>(&rank));
    }
    bool cancelled = false;
    const auto poll = [&] {
        const auto now = static_cast<std::int64_t>(cluster.events.reached());
        cancelled = progress && !progress(now, cluster.ranks_finished);
        return !cancelled && !cluster.tied;
    };
    if (poll()) cluster.events.run(poll);
    if (cancelled) throw Cancelled("The simulation was cancelled.");
    if (cluster.mailbox.network().misled_by_trains()) {
        Output output;
        output.misled_by_trains = true;
        return {std::move(output)};
    }
    if (const Gpus* gpus = cluster.mailbox.network().gpus(); gpus != nullptr && gpus->out_of_step())
        return {};
    const bool stalled = cluster.ranks_finished < static_cast<std::int32_t>(simulated.ranks().size());
    // Only a simulation of all ranks shows which of several identical ranks is blocked.
    if (fold != nullptr && !fold->is_given() && (cluster.tied || stalled))
        return {std::nullopt, stalled && !cluster.tied};
    // Stalls are only reported from a simulation of all messages.
    if (meet && (cluster.tied || stalled)) return {std::nullopt, false};
    return {collect(cluster, simulated), stalled};
}

Output simulate_as_asked(const Config& config, const Fold::Programs& programs,
                         const std::vector<std::int32_t>& program_of_rank, const Progress& progress) {
    const UnevenCollectives uneven(config, programs, program_of_rank);
    Config eased = config;
    if (!config.representative_of_rank.empty()) {
        const auto given = Fold::given(config, programs, program_of_rank);
        for (;;) {
            Attempt attempt = run(eased, given.get(), uneven, programs, program_of_rank, progress);
            if (!attempt.stalled || !may_ease(eased)) return std::move(*attempt.output);
            ++eased.overtaking;
        }
    }
    if (const auto fold = Fold::find(config, programs, program_of_rank, uneven)) {
        Attempt folded = run(config, fold.get(), uneven, programs, program_of_rank, progress);
        if (folded.output) return std::move(*folded.output);
        // If the representatives stall, all ranks would stall.
        if (folded.stalled && may_ease(eased)) ++eased.overtaking;
    }
    if (may_meet(eased)) {
        Attempt met = run(eased, nullptr, uneven, programs, program_of_rank, progress, true);
        if (met.output) return std::move(*met.output);
    }
    const auto every_rank = [&] {
        Attempt attempt = run(eased, nullptr, uneven, programs, program_of_rank, progress);
        if (attempt.output) return std::move(*attempt.output);
        eased.fold = false;
        return std::move(*run(eased, nullptr, uneven, programs, program_of_rank, progress).output);
    };
    Output output = every_rank();
    while (!output.unfinished.empty() && may_ease(eased)) {
        ++eased.overtaking;
        output = every_rank();
    }
    return output;
}

}  // namespace

void check_config(const Config& config) {
    check_network(config);
    check_fabric(config.fabric);
    check_fields(config);
}

Output simulate(const Config& config, const std::vector<std::shared_ptr<const Program>>& programs,
                const std::vector<std::int32_t>& program_of_rank, const Progress& progress) {
    check_config(config);
    check_ranks(config, programs.size(), program_of_rank);
    Output output = simulate_as_asked(config, programs, program_of_rank, progress);
    if (output.misled_by_trains) {
        Config alone = config;
        alone.packet.train = 1;
        output = simulate_as_asked(alone, programs, program_of_rank, progress);
    }
    output.evened = evened_collectives(config, programs);
    return output;
}

}  // namespace chakrascope::engine
