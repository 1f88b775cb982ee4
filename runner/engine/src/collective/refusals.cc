#include "refusals.h"

#include <map>
#include <tuple>

#include "../errors.h"
#include "../simulation/simulation.h"
#include "../workload/groups.h"
#include "algorithm.h"
#include "planner.h"

namespace chakrascope::engine {
namespace {

// Plans the collectives of ranks, and runs the checks that the simulation makes at the start of each
// phase.
class Inspector {
  public:
    explicit Inspector(const Config& config)
        : config_(config), groups_(config), implementations_(config), customs_(config) {}

    std::string refusal(const Node& node) {
        // With `replay_only`, every node takes its recorded time.
        if (config_.replay_only) return "";
        const auto request = request_of(node, config_);
        if (!request) return "";
        if (!groups_.contains(node.group))
            return "There is no communicator group " + std::to_string(node.group) + "; correct the groups.";
        try {
            inspect(*request);
        } catch (const ConfigError& error) {
            return error.what();
        } catch (const WorkloadFormatError& error) {
            return error.what();
        } catch (const DependencyError& error) {
            return error.what();
        }
        return "";
    }

  private:
    // Check a collective on the members of its group. The rings of members differ only in position, and
    // only custom algorithms depend on the position.
    void inspect(const CollectiveRequest& request) {
        const auto& members = groups_.members(request.group);
        const auto count =
            request.group == 0 ? config_.num_ranks() : static_cast<std::int64_t>(members.size());
        for (std::int64_t place = 0; place < count; ++place) {
            const auto rank = static_cast<std::int32_t>(
                request.group == 0 ? place : members[static_cast<std::size_t>(place)]);
            if (!inspect(request, rank)) return;
        }
    }

    // Check a collective on one rank, and return whether the other members have to be checked.
    bool inspect(const CollectiveRequest& request, std::int32_t rank) {
        Planner& planner =
            planners_.try_emplace(rank, config_, groups_, implementations_, rank).first->second;
        const Choice choice = planner.choose(request);
        const Planner::Chunks chunks = planner.split(request, choice);
        if (chunks.count > 0) {
            for (const Phase& phase : planner.plan(request, choice, 0, 0, chunks.size))
                require_works(phase, config_, customs_);
        }
        return choice.custom != nullptr;
    }

    const Config& config_;
    const Groups groups_;
    const Implementations implementations_;
    CustomAlgorithms customs_;
    std::map<std::int32_t, Planner> planners_;
};

}  // namespace

std::vector<Node> distinct_collectives(const Program& program, const std::set<std::uint64_t>& separate,
                                       bool sizes) {
    std::set<std::tuple<CommType, std::int64_t, std::uint8_t, std::uint64_t>> seen;
    std::vector<Node> distinct;
    for (std::uint32_t i = 0; i < program.size(); ++i) {
        const Facts& node = program.facts(i);
        if (node.type != NodeType::Coll) continue;
        const std::uint64_t size = sizes ? node.comm_size : node.comm_size > 0;
        const bool fresh = seen.emplace(node.comm_type, node.group, node.involved_dims, size).second;
        if (fresh || separate.contains(program.id(i))) distinct.push_back(program.node(i));
    }
    return distinct;
}

std::vector<std::string> find_refusals(const Config& config, const std::vector<Node>& collectives) {
    check_config(config);
    Inspector inspector(config);
    std::vector<std::string> refusals;
    for (const Node& node : collectives) refusals.push_back(inspector.refusal(node));
    return refusals;
}

}  // namespace chakrascope::engine
