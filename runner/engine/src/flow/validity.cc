#include "validity.h"

#include <algorithm>
#include <limits>
#include <map>

namespace chakrascope::engine::flow {
namespace {

// Real queues are longer than windows permit, so marks are flagged from this fraction of the threshold.
constexpr double kMargin = 0.8;
// An effect is flagged if it concerns at least this fraction of all bytes. Smaller effects hardly change the
// makespan.
constexpr double kShare = 0.2;
constexpr double kReserveBytes = 4096;
constexpr double kPoolShare = 8;

double lookup(const std::map<std::uint64_t, double>& table, std::uint64_t rate) {
    if (table.empty()) return 0;
    const auto found = table.lower_bound(rate);
    return found != table.end() ? found->second : table.rbegin()->second;
}

}  // namespace

Validity::Validity(const Routes& routes, const packet::Settings& settings)
    : settings_(settings),
      nodes_(static_cast<std::size_t>(routes.nodes())),
      came_in_(routes.directions().size()) {
    for (Node& node : nodes_) node.pool = static_cast<double>(settings.buffer_bytes);
    for (const Direction& link : routes.directions()) {
        mark_low_.push_back(lookup(settings.mark_low_kb, link.rate_bps) * 1000);
        node_of_.push_back(link.from);
        loses_ = loses_ || link.loss > 0;
        if (link.rate_bps == 0) continue;
        const double flying = static_cast<double>(link.rate_bps) * static_cast<double>(link.delay) / 8e12;
        nodes_[static_cast<std::size_t>(link.from)].pool -=
            kReserveBytes + flying * static_cast<double>(settings.headroom_factor);
    }
}

void Validity::joined(const Checked& flow, const Clusters& clusters) {
    carried_ += flow.amount;
    if (flow.windows <= 1 && flow.crowded > 1) bursts_ += flow.amount;
    if (flow.hop == 0) return;
    const std::uint32_t link = flow.path[flow.hop];
    if (clusters.flows(link) > 1 && flow.windows > 1) controlled_ += flow.amount;
    came_in_[flow.path[flow.hop - 1]] += flow.stake.bytes;
    nodes_[static_cast<std::size_t>(node_of_[link])].held += flow.stake.bytes;
    if (clusters.flows(link) < 2 && flow.stake.burst <= 1) return;
    check_marks(link, clusters);
    check_pauses(flow);
}

void Validity::left(const Checked& flow) {
    if (flow.hop == 0) return;
    came_in_[flow.path[flow.hop - 1]] -= flow.stake.bytes;
    nodes_[static_cast<std::size_t>(node_of_[flow.path[flow.hop]])].held -= flow.stake.bytes;
}

void Validity::check_marks(std::uint32_t link, const Clusters& clusters) {
    const bool heeded =
        settings_.control == packet::Control::Dcqcn || settings_.control == packet::Control::Dctcp;
    if (settings_.mark && heeded && clusters.bytes(link) >= kMargin * mark_low_[link]) marks_ = true;
}

void Validity::check_pauses(const Checked& flow) {
    const Node& node = nodes_[static_cast<std::size_t>(node_of_[flow.path[flow.hop]])];
    const double threshold = std::max(node.pool - node.held, 0.0) / kPoolShare;
    if (came_in_[flow.path[flow.hop - 1]] > threshold) pauses_ = true;
}

std::vector<std::string> Validity::flags(const Clusters& clusters, bool lost) const {
    std::vector<std::string> found;
    if (marks_) found.emplace_back("marks");
    const bool measures_delay = settings_.control == packet::Control::Hpcc ||
                                settings_.control == packet::Control::HpccPint ||
                                settings_.control == packet::Control::Timely;
    if (measures_delay && controlled_ > kShare * carried_) found.emplace_back("control");
    if (pauses_) found.emplace_back("pauses");
    if (bursts_ > kShare * carried_) found.emplace_back("bursts");
    if (clusters.two_way()) found.emplace_back("two-way");
    if (loses_ || lost) found.emplace_back("loss");
    return found;
}

}  // namespace chakrascope::engine::flow
